package wires

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Send sends a frame or a packet by a raw socket. A busy machine may have no buffers for it: then
// it is sent again, because what was not sent is no verdict.
func Send(fd int, frame []byte, to unix.Sockaddr) error {
	for end := time.Now().Add(Patience); ; runtime.Gosched() {
		var err error
		if to == nil {
			err = unix.Send(fd, frame, 0)
		} else {
			err = unix.Sendto(fd, frame, 0, to)
		}
		if !errors.Is(err, unix.ENOBUFS) || time.Now().After(end) {
			return err
		}
	}
}
