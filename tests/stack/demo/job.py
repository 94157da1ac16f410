"""The program that the demo runs in a box: reads data.csv, prints while it works, writes out/report.csv and out/plot.png.

Standard library only; the PNG is made of zlib and struct.
"""
import csv
import os
import struct
import sys
import time
import zlib

WIDTH, HEIGHT, MARGIN = 480, 240, 20
WHITE, GRID, BAR, LINE, AXIS = (255, 255, 255), (226, 230, 235), (158, 188, 218), (197, 57, 43), (60, 64, 70)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels):
    rows = b"".join(b"\0" + bytes(byte for colour in row for byte in colour) for row in pixels)
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def fill(pixels, left, top, right, bottom, colour):
    for y in range(max(top, 0), min(bottom, HEIGHT)):
        for x in range(max(left, 0), min(right, WIDTH)):
            pixels[y][x] = colour


def line(pixels, x0, y0, x1, y1, colour):
    steps = max(abs(x1 - x0), abs(y1 - y0), 1)
    for i in range(steps + 1):
        x, y = x0 + (x1 - x0) * i // steps, y0 + (y1 - y0) * i // steps
        fill(pixels, x, y - 1, x + 2, y + 1, colour)


def plot(values, means):
    pixels = [[WHITE] * WIDTH for _ in range(HEIGHT)]
    top = max(values)
    bottom = HEIGHT - MARGIN

    def height(value):
        return bottom - round(value * (HEIGHT - 2 * MARGIN) / top)

    def left(i):
        return MARGIN + i * (WIDTH - 2 * MARGIN) // len(values)

    for part in range(1, 5):
        y = height(top * part / 4)
        fill(pixels, MARGIN, y, WIDTH - MARGIN, y + 1, GRID)
    for i, value in enumerate(values):
        fill(pixels, left(i) + 2, height(value), left(i + 1) - 2, bottom, BAR)
    centres = [(left(i) + left(i + 1)) // 2 for i in range(len(values))]
    for i in range(1, len(means)):
        line(pixels, centres[i - 1], height(means[i - 1]), centres[i], height(means[i]), LINE)
    fill(pixels, MARGIN, bottom, WIDTH - MARGIN, bottom + 2, AXIS)
    fill(pixels, MARGIN, MARGIN, MARGIN + 2, bottom, AXIS)
    return png(pixels)


def main():
    with open("data.csv", newline="") as file:
        rows = [(row["hour"], int(row["requests"])) for row in csv.DictReader(file)]
    print(f"read {len(rows)} rows from data.csv", flush=True)
    print("pid %d, uid %d, folder %s, python %s" % (os.getpid(), os.getuid(), os.getcwd(), sys.version.split()[0]), file=sys.stderr, flush=True)
    values = [value for _, value in rows]
    means = []
    for i, (hour, value) in enumerate(rows):
        window = values[max(0, i - 2):i + 3]
        means.append(sum(window) / len(window))
        if i % 4 == 3:
            print(f"{hour}  {value:5d} requests, mean of five {means[-1]:7.1f}", flush=True)
        time.sleep(0.08)
    os.makedirs("out", exist_ok=True)
    with open("out/report.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hour", "requests", "mean_of_five"])
        writer.writerows((hour, value, "%.1f" % mean) for (hour, value), mean in zip(rows, means))
    with open("out/plot.png", "wb") as file:
        file.write(plot(values, means))
    print("busiest hour: %s" % max(rows, key=lambda row: row[1])[0], flush=True)
    print("wrote out/report.csv and out/plot.png", file=sys.stderr, flush=True)


main()
