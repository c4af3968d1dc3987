#!/usr/bin/env python3
"""Hangs a VPP: 16 clients of its API socket end at the same moment.

usage: vpp-file-poll.py /path/to/vpp

Starts that vpp without devices and privileges, connects sixteen clients, ends them while vpp is
stopped, and asks for the version. Exit 0: it answers. Exit 1: it does not, for five seconds.
"""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

CLIENTS = 16  # ARRAY_LEN (epoll_events) in vlib_file_poll


def connect(path):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    while True:
        try:
            client.connect(path)
            return client
        except BlockingIOError:  # VPP's queue of those that connect is short
            time.sleep(0.01)


def version(path):
    """Asks the command line, without its terminal."""
    client = connect(path)
    client.sendall(b"show version\n")
    answer = b""
    while b"built by" not in answer:
        part = client.recv(4096)
        if not part:
            raise OSError("the command line has ended")
        answer += part
    client.close()
    return next(l for l in answer.decode(errors="replace").splitlines() if "built by" in l).strip()


def main():
    with tempfile.TemporaryDirectory() as folder:
        api, cli, config = (os.path.join(folder, n) for n in ("api.sock", "cli.sock", "startup.conf"))
        with open(config, "w") as f:
            f.write(f"""unix {{ nodaemon runtime-dir {folder} cli-listen {cli} log {folder}/log poll-sleep-usec 100 }}
api-segment {{ prefix poll-{os.getpid()} gid {os.getgid()} }}
socksvr {{ socket-name {api} }}
statseg {{ socket-name {folder}/stats.sock }}
memory {{ main-heap-size 256M }}
buffers {{ buffers-per-numa 2048 page-size default }}
physmem {{ max-size 64m }}
plugins {{ plugin default {{ disable }} }}
""")
        vpp = subprocess.Popen([sys.argv[1], "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for attempt in range(600):
                try:
                    print("before:", version(cli))
                    break
                except OSError:
                    time.sleep(0.1)
            clients = [connect(api) for _ in range(CLIENTS)]
            version(cli)  # all are accepted
            os.kill(vpp.pid, signal.SIGSTOP)
            for client in clients:
                client.close()
            os.kill(vpp.pid, signal.SIGCONT)
            try:
                print("after: ", version(cli))
                return 0
            except OSError as error:
                print(f"after:  no answer ({error}): vpp hangs in vlib_file_poll")
                return 1
        finally:
            vpp.kill()
            vpp.wait()


if __name__ == "__main__":
    sys.exit(main())
