package wires

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Count is what became of packets that one pod sent to another all the time.
type Count struct {
	Sent  atomic.Int64
	Wrong atomic.Int64 // answered, and must not be, or the other way round
	stop  func()
}

// Stop ends the sending, once every answer has had its time.
func (c *Count) Stop() { c.stop() }

// pause is between packets that are not answered.
const pause = time.Millisecond

// Send sends datagrams from a pod to a server until Stop is called: either all must be answered, or
// none.
func (c *Cable) Send(from, to string, family int, port uint16, answered bool) *Count {
	c.T.Helper()
	conn, err := c.Dial(from, to, "udp", family, port, Patience)
	c.Must(err)
	out, ended := &Count{}, make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			n := out.Sent.Add(1)
			if got := ask(conn, uint64(n), answered); got != answered {
				out.Wrong.Add(1)
			}
			if answered {
				time.Sleep(pause / 4) // others run on this machine, too
			}
		}
	})
	out.stop = sync.OnceFunc(func() {
		close(ended)
		running.Wait()
		if !answered && ask(conn, 0, true) { // late ones, too
			out.Wrong.Add(1)
		}
		_ = conn.Close() // nothing was lost that was not counted
	})
	c.T.Cleanup(out.Stop)
	return out
}

// ask sends a number and reports whether it, or an earlier one, comes back.
func ask(conn net.Conn, n uint64, wait bool) bool {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	if _, err := conn.Write(b[:]); err != nil {
		return false
	}
	patience := pause
	if wait {
		patience = Patience
	}
	if n == 0 {
		patience = Impatience
	}
	for end := time.Now().Add(patience); ; {
		if err := conn.SetReadDeadline(end); err != nil {
			return false
		}
		switch _, err := conn.Read(b[:]); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case err != nil:
			continue // what ICMP said of an earlier one
		case !wait || n == 0 || binary.BigEndian.Uint64(b[:]) == n:
			return true
		}
	}
}

// BPFFS mounts a bpf file system for the test, in which pins can be made.
func BPFFS(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, "mode=0700"); err != nil {
		t.Skipf("no bpf file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return root
}
