"""A device for the real adb: the daemon's side of its protocol over TCP, standard library only, so that it runs inside the arm64 root.

In:  python adbd.py PORT [--old]
Out: a device that runs shell commands and moves files (CNXN, OPEN, WRTE, OKAY, CLSE; shell:, shell,v2: and sync:).
With --old it is a device before Android 7: no exit codes, output and errors mixed, newlines that a terminal turned into CR LF.
The formats are those of the Android source, adb's protocol.txt, SYNC.TXT and shell_protocol.h.
"""

import os
import shutil
import socket
import struct
import subprocess
import sys
import threading

VERSION, MAX_DATA = 0x01000000, 256 * 1024
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = 0, 1, 2, 3, 4
ENVIRONMENT = {"HOME": "/nowhere", "PATH": os.environ.get("PATH", "/usr/bin:/bin"), **{k: v for k, v in os.environ.items() if k.startswith("QEMU")}}
"""adb shell has no home that can be written to"""


class Device:
    """One connection of an adb server."""

    def __init__(self, connection, old):
        self.connection, self.old = connection, old
        self.sending = threading.Lock()
        self.streams = {}

    def serve(self):
        while header := self.exactly(24):
            command, one, two, length, _, _ = struct.unpack("<4s5I", header)
            data = self.exactly(length) if length else b""
            if command == b"CNXN":
                features = "" if self.old else "features=shell_v2,cmd"
                banner = f"device::ro.product.name=test;ro.product.model=test;ro.product.device=test;{features}"
                self.send(b"CNXN", VERSION, MAX_DATA, banner.encode())
            elif command == b"OPEN":
                stream = Stream(self, len(self.streams) + 1, one)
                self.streams[stream.ours] = stream
                threading.Thread(target=stream.run, args=(data.rstrip(b"\0").decode(),), daemon=True).start()
            elif two in self.streams:
                {b"WRTE": self.streams[two].received, b"OKAY": self.streams[two].acknowledged, b"CLSE": self.streams[two].closed}[command](data)

    def exactly(self, count):
        content = b""
        while len(content) < count:
            try:
                piece = self.connection.recv(count - len(content))
            except OSError:
                piece = b""
            if not piece:
                return b""
            content += piece
        return content

    def send(self, command, one, two, data=b""):
        header = struct.pack("<4s5I", command, one, two, len(data), sum(data) & 0xFFFFFFFF, struct.unpack("<I", command)[0] ^ 0xFFFFFFFF)
        with self.sending:
            self.connection.sendall(header + data)


class Stream:
    """One service that the server opened."""

    def __init__(self, device, ours, theirs):
        self.device, self.ours, self.theirs = device, ours, theirs
        self.arrived, self.content, self.ended = threading.Condition(), b"", False
        self.may_send = threading.Semaphore(1)

    def received(self, data):
        with self.arrived:
            self.content += data
            self.arrived.notify_all()
        self.device.send(b"OKAY", self.ours, self.theirs)

    def acknowledged(self, _data):
        self.may_send.release()

    def closed(self, _data):
        with self.arrived:
            self.ended = True
            self.arrived.notify_all()
        self.may_send.release()

    def read(self, count):
        with self.arrived:
            self.arrived.wait_for(lambda: len(self.content) >= count or self.ended)
            data, self.content = self.content[:count], self.content[count:]
        return data

    def write(self, data):
        for at in range(0, len(data), MAX_DATA // 2):
            self.may_send.acquire()
            if self.ended:
                return
            self.device.send(b"WRTE", self.ours, self.theirs, data[at : at + MAX_DATA // 2])

    def run(self, service):
        try:
            self.device.send(b"OKAY", self.ours, self.theirs)
            kind, _, rest = service.partition(":")
            if kind == "sync":
                self.sync()
            elif kind.startswith("shell,v2") and not self.device.old:
                self.shell_v2(rest)
            elif kind.split(",")[0] in ("shell", "exec"):
                self.shell(rest, kind == "exec")
            self.may_send.acquire()
            self.device.send(b"CLSE", self.ours, self.theirs)
        except OSError:
            pass  # the cable was pulled; what was started goes on

    def shell(self, command, raw):
        process = start_shell(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        while piece := os.read(process.stdout.fileno(), 65536):
            self.write(piece if raw else piece.replace(b"\n", b"\r\n"))
        process.wait()

    def shell_v2(self, command):
        process = start_shell(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        readers = [threading.Thread(target=self.pump, args=(pipe, kind)) for pipe, kind in ((process.stdout, STDOUT), (process.stderr, STDERR))]
        threading.Thread(target=self.feed, args=(process.stdin,), daemon=True).start()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.write(struct.pack("<BIB", EXIT, 1, process.wait() & 0xFF))

    def pump(self, pipe, kind):
        while piece := os.read(pipe.fileno(), 65536):
            self.write(struct.pack("<BI", kind, len(piece)) + piece)

    def feed(self, stdin):
        while len(header := self.read(5)) == 5:
            kind, length = struct.unpack("<BI", header)
            data = self.read(length)
            if kind == CLOSE_STDIN:
                break
            if kind == STDIN:
                try:
                    stdin.write(data)
                    stdin.flush()
                except OSError:
                    break
        stdin.close()

    def sync(self):
        while len(header := self.read(8)) == 8:
            name, length = header[:4], struct.unpack("<I", header[4:])[0]
            path = self.read(length).decode() if name in (b"STAT", b"SEND", b"RECV") else ""
            if name == b"STAT":
                self.write(b"STAT" + self.status(path))
            elif name == b"SEND":
                self.take(path.rpartition(",")[0])
            elif name == b"RECV":
                self.give(path)
            else:
                return

    def status(self, path):
        try:
            found = os.lstat(path)
            return struct.pack("<3I", found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime))
        except OSError:
            return struct.pack("<3I", 0, 0, 0)

    def take(self, path):
        """SEND: DATA chunks until DONE; half a file is left behind when the cable is pulled, as on a device."""
        try:
            with open(path, "wb") as file:
                while True:
                    name, length = struct.unpack("<4sI", self.read(8).ljust(8, b"\0"))
                    if name != b"DATA":
                        break
                    file.write(self.read(length))
            self.write(b"OKAY" + struct.pack("<I", 0))
        except OSError as error:
            text = str(error).encode()
            self.write(b"FAIL" + struct.pack("<I", len(text)) + text)

    def give(self, path):
        try:
            with open(path, "rb") as file:
                while piece := file.read(65536):
                    self.write(b"DATA" + struct.pack("<I", len(piece)) + piece)
            self.write(b"DONE" + struct.pack("<I", 0))
        except OSError as error:
            text = str(error).encode()
            self.write(b"FAIL" + struct.pack("<I", len(text)) + text)


def start_shell(command, **streams):
    return subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, env=ENVIRONMENT, cwd="/", **streams)


def main(port, *options):
    if shutil.which("sh") is None:
        sys.exit("no sh here")
    with socket.create_server(("127.0.0.1", int(port))) as server:
        print("listening", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=Device(connection, "--old" in options).serve, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
