package vpp

import (
	"encoding/binary"
	"sync"
	"time"

	"go.fd.io/govpp/adapter"
)

// answers stands between GoVPP and the vswitch, and knows since when a message waits for its
// answer. The vswitch answers in the order in which it is asked, and GoVPP's health check asks
// all the time, so that a vswitch that stands still is noticed also when there is no Commit.
type answers struct {
	adapter.VppAPI

	mu     sync.Mutex
	newest uint32    // the context of the message that was sent last
	since  time.Time // when the vswitch was asked, or answered something else; zero: all is answered
}

// waiting returns since when the vswitch has not answered; zero when nothing waits.
func (a *answers) waiting() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since
}

// SendMsg implements adapter.VppAPI.
func (a *answers) SendMsg(context uint32, data []byte) error {
	a.mu.Lock()
	if a.newest = context; a.since.IsZero() {
		a.since = time.Now()
	}
	a.mu.Unlock()
	return a.VppAPI.SendMsg(context, data)
}

// SetMsgCallback implements adapter.VppAPI.
func (a *answers) SetMsgCallback(cb adapter.MsgCallback) {
	a.VppAPI.SetMsgCallback(func(id uint16, data []byte) {
		a.came(data)
		cb(id, data)
	})
}

// Disconnect implements adapter.VppAPI. Nobody waits for an answer any more.
func (a *answers) Disconnect() error {
	a.mu.Lock()
	a.since = time.Time{}
	a.mu.Unlock()
	return a.VppAPI.Disconnect()
}

// came takes a message of the vswitch. Of a dump every part is one, and every event: as long as
// they come the vswitch is at work.
func (a *answers) came(data []byte) {
	const afterID, body = 2, 6
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.since.IsZero():
	case len(data) >= body && binary.BigEndian.Uint32(data[afterID:]) == a.newest:
		a.since = time.Time{}
	default:
		a.since = time.Now()
	}
}
