#!/usr/bin/env bash
# run.sh BUILD [v2|v1|systemd]...: a guest with Debian's own kernel under QEMU without KVM. Prints `N passed, N failed, N skipped` last.
# v2, v1 (both when none is named): the box tests, with cgroup v2 alone and with v1 controllers alone, which the machine at hand may not have.
# systemd: a Debian with systemd as pid 1, where Cordon is installed by the steps of docs/operations.md and tests/guest/systemd.sh judges
# the units.
#
# GUEST_TESTS="test_box test_box_life" runs only those; GUEST_TIMEOUT_S is the most that one guest may take.
# What is made stays in BUILD/guest: the kernel's package, Debian's packages, the images of the guests' files, the logs of the console.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:?"usage: run.sh BUILD [v2|v1|systemd]..."}
shift
modes=("$@")
[ ${#modes[@]} -gt 0 ] || modes=(v2 v1)
work=$build/guest
tests=${GUEST_TESTS:-}
[ -n "$tests" ] || [ ! -d "$build/tests/api" ] || tests=$(cd "$build/tests/api" && echo test_box*)
limit=${GUEST_TIMEOUT_S:-1500}
mkdir -p "$work"
bash tests/stack/packages.sh guest
guest_pid=""
trap '[ -z "$guest_pid" ] || kill "$guest_pid" 2>/dev/null || true' EXIT

# the kernel's files, without installing it on this machine
kernel() {
  local package
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  if [ -z "$package" ]; then
    echo "guest: no package linux-image-cloud-amd64 is known here" >&2
    return 1
  fi
  if [ ! -e "$work/kernel/$package" ]; then
    rm -rf "$work/kernel"
    mkdir -p "$work/kernel"
    (cd "$work/kernel" && apt-get download -q -o APT::Sandbox::User=root "$package" >/dev/null && dpkg-deb -x "$package"_*.deb . && rm -f ./*.deb && : >"$package")
  fi
  echo "$work"/kernel/boot/vmlinuz-*
}

# initramfs: busybox and the modules, to find the disk; the rest is tests/guest/init.sh on it
initramfs() {
  local tree=$work/initramfs modules name
  modules=$(echo "$work"/kernel/lib/modules/*/kernel)
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,m,new,proc,sys,dev}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  # in the order of their needs
  for name in drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev \
    drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci drivers/block/virtio_blk drivers/block/loop block/bfq; do
    [ ! -e "$modules/$name.ko" ] || cp "$modules/$name.ko" "$tree/m/"
  done
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
set -e
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
next=/cordon/init.sh
case "$($b cat /proc/cmdline)" in *cordon.mode=systemd*) next=/sbin/init ;; esac
for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk loop bfq; do
  [ ! -e /m/$name.ko ] || $b insmod /m/$name.ko
done
for i in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/vda ] && break || $b sleep 1; done
$b mount -t ext4 /dev/vda /new
$b mount -t devtmpfs dev /new/dev
$b umount /proc
$b umount /dev
exec $b switch_root /new $next
INIT
  mknod "$tree/dev/console" c 5 1
  chmod 755 "$tree/init"
  (cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs.gz"
}

# paths below a merged /usr, as the files really lie
merged() { sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#'; }

# the libraries that programs and libraries of a tree need
libraries() {
  { find "$@" -type f \( -perm /111 -o -name '*.so*' \) -print0 | xargs -0 ldd 2>/dev/null || true; } |
    grep -oE '/[^ ]+ \(0x' | grep -oE '/[^ ]+' | grep -vF "$PWD/" | sort -u
}

# a small Debian from the files of this machine's packages, our programs, and the tests
image() {
  local root=$work/root list=$work/files package file
  rm -rf "$root"
  mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,etc,proc,sys,dev,run,tmp,root,var/tmp,mnt,opt,home,cordon/build}
  for file in bin sbin lib lib64; do ln -s usr/$file "$root/$file"; done
  {
    dpkg-query -W -f '${Package} ${Essential}\n' | awk '$2 == "yes" { print $1 }'
    echo libc6 libc-bin e2fsprogs procps mount util-linux python3 python3-minimal python3.11 python3.11-minimal \
      libpython3.11-minimal libpython3.11-stdlib media-types iproute2 | tr ' ' '\n'
  } | sort -u | while read -r package; do dpkg-query -L "$package" 2>/dev/null || true; done | merged |
    grep -E '^/(usr|etc)/' | grep -vE '^/usr/share/(doc|man|locale|info|lintian|bug|menu)/' | sort -u |
    while read -r file; do [ ! -f "$file" ] && [ ! -L "$file" ] || echo "${file#/}"; done >"$list"
  tar -C / -c --ignore-failed-read -T "$list" 2>/dev/null | tar -C "$root" -x
  cp -a --parents /etc/alternatives "$root"
  cp -a "$build/bin" "$root/cordon/build/"
  mkdir -p "$root/cordon/build/tests"
  cp -a "$build/tests/api" "$build/tests/unit" "$build/tests/probe" "$root/cordon/build/tests/"
  libraries "$root" | merged | while read -r file; do
    [ -e "$root$file" ] || echo "${file#/}"
  done >"$list"
  tar -C / -ch -T "$list" | tar -C "$root" -x
  ldconfig -r "$root"
  printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n' >"$root/etc/passwd"
  printf 'cordon-run:x:990:990:cordon:/:/usr/sbin/nologin\n' >>"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\ncordon-run:x:990:\n' >"$root/etc/group"
  printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
  install -m 755 tests/guest/init.sh "$root/cordon/init.sh"
  disk "$root" "$work/disk.img" 2G
}

# disk ROOT IMAGE SIZE: an image of the tree ROOT, which goes
disk() {
  rm -f "$2"
  truncate -s "$3" "$2"
  mke2fs -q -F -t ext4 -O ^has_journal -E lazy_itable_init=1 -d "$1" "$2"
  rm -rf "$1"
}

# the packages that docs/operations.md names for a real host
host_packages() {
  awk '$0 == "### Packages" { on = 1 } on && /^```$/ { exit } p; on && /^```sh$/ { p = 1 }' docs/operations.md | tr -c 'a-z0-9.+\n-' '\n' |
    grep -xE '[a-z0-9][a-z0-9.+-]+' | grep -vxE 'apt-get|install'
}

# a Debian from the archives that apt has here, of Debian's own; made anew when the packages or archives are others
debian() {
  local packages archives tar
  packages=systemd-sysv,util-linux,$(host_packages | sort | paste -sd ,)
  # shellcheck disable=SC2016
  archives=$(apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)|$(ORIGIN)' 'Created-By: Packages' | sed -n 's/|Debian$//p' | sort -u)
  tar=$work/debian-$(echo "$packages $archives" | sha256sum | cut -c 1-12).tar
  if [ ! -e "$tar" ]; then
    rm -f "$work"/debian-*.tar
    echo "making a Debian of its packages (a minute)" >&2
    if ! (umask 022 && mmdebstrap --mode=root --format=tar --variant=minbase --aptopt='APT::Install-Recommends "false"' --include="$packages" \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      bookworm "$tar.new" - <<<"$archives") >"$work/debian.log" 2>&1; then
      tail -n 20 "$work/debian.log" >&2
      return 1
    fi
    mv "$tar.new" "$tar"
  fi
  echo "$tar"
}

# that Debian, what `make install` installs, and the script that is started in it
image_systemd() {
  local root=$work/root tar
  tar=$(debian)
  rm -rf "$root"
  mkdir -p "$root"
  tar -C "$root" --exclude='./dev/*' -xf "$tar"
  make -s install BUILD="$build" DESTDIR="$PWD/$root" >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log" >&2 && return 1; }
  install -m 755 tests/guest/systemd.sh "$root/usr/local/sbin/cordon-guest"
  ln -sf /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
  cat >"$root/etc/systemd/system/guest.service" <<'UNIT'
[Unit]
Description=the tests of this guest
After=basic.target
[Service]
ExecStart=/usr/local/sbin/cordon-guest
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -s ../guest.service "$root/etc/systemd/system/multi-user.target.wants/"
  echo guest >"$root/etc/hostname"
  echo '127.0.0.1 localhost guest' >"$root/etc/hosts"
  : >"$root/etc/machine-id"
  disk "$root" "$work/systemd.img" 4G
}

passed=0 failed=0 skipped=0

# boot MODE IMAGE CMDLINE [OPTION]...: a guest from its start to its end; console and status are those of guest
boot() {
  local mode=$1 disk=$2 cmdline=$3
  shift 3
  timeout --kill-after=5 "$limit" nice qemu-system-x86_64 -accel tcg,thread=multi -machine q35 -cpu max -smp 2 -m 3072 \
    -nodefaults -no-user-config "$@" -display none -serial "file:$console" \
    -kernel "$image_kernel" -initrd "$work/initramfs.gz" -append "console=ttyS0 quiet panic=-1 cordon.mode=$mode $cmdline" \
    -drive "file=$disk,format=raw,if=virtio,snapshot=on" &
  guest_pid=$!
  wait "$guest_pid" || status=$?
  guest_pid=""
  tr -d '\r' <"$console" >"$console.txt"
  mv "$console.txt" "$console"
}

# says why when the guest did not come to its end
ended() {
  grep -q '^guest: end' "$console" && return
  echo "  the guest did not come to its end (status $status); the last lines of its console:"
  tail -n 20 "$console" | sed 's/^/    /'
  failed=$((failed + 1))
}

# guest MODE: boots, waits for the end, reads the console
guest() {
  local mode=$1 console=$work/$1.log start=$SECONDS status=0 name p f s
  echo "guest with cgroup $mode alone ($console)"
  boot "$mode" "$work/disk.img" "cordon.tests=${tests// /,} cordon.slow=${GUEST_SLOW:-8}" -no-reboot
  for name in $tests; do
    p=0 f=1 s=0
    read -r p f s < <(sed -n "s/^guest: $name: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped.*/\1 \2 \3/p" "$console") || true
    printf '  %-32s %s passed, %s failed, %s skipped\n' "$name" "${p:-0}" "${f:-1}" "${s:-0}"
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
  done
  sed -n 's/^guest: note: /  /p' "$console"
  ended
  echo "  $((SECONDS - start)) s"
}

# the guest with systemd; it starts itself anew once, so it may reboot
guest_systemd() {
  local console=$work/systemd.log start=$SECONDS status=0 count
  echo "guest with systemd ($console)"
  boot systemd "$work/systemd.img" "systemd.show_status=0 loglevel=3"
  sed -n 's/^guest: \(note: .*\|.* \.\.\. \(passed\|FAILED\|skipped\).*\|  .*\)$/  \1/p' "$console"
  for count in passed failed skipped; do
    # passed=..., failed=..., skipped=...
    printf -v "$count" %d $((${!count} + $(grep -ciE "^guest: .* \.\.\. $count" "$console" || true)))
  done
  ended
  echo "  $((SECONDS - start)) s"
}

image_kernel=$(kernel)
initramfs
case " ${modes[*]} " in *" v1 "* | *" v2 "*) image ;; esac
for mode in "${modes[@]}"; do
  case $mode in
  v1 | v2) guest "$mode" ;;
  systemd)
    bash tests/stack/packages.sh guest-systemd
    image_systemd
    guest_systemd
    ;;
  *) echo "guest: no mode $mode" >&2 && exit 1 ;;
  esac
done
printf '\n%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
