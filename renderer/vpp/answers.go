package vpp

import (
	"encoding/binary"
	"sync"
	"time"

	"go.fd.io/govpp/adapter"
)

// answers sits between GoVPP and the vswitch, and tracks since when a message waits for its answer.
// The vswitch answers in order, and GoVPP sends health checks all the time, so a hanging vswitch is
// detected even without an Apply.
type answers struct {
	adapter.VppAPI

	mu     sync.Mutex
	newest uint32    // context of the last message sent
	since  time.Time // when the vswitch was asked, or last sent anything; zero when all is answered
}

// unanswered returns when the vswitch last made progress on outstanding requests; zero when there are
// none.
func (a *answers) unanswered() time.Time {
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

// Disconnect implements adapter.VppAPI. It clears outstanding requests.
func (a *answers) Disconnect() error {
	a.mu.Lock()
	a.since = time.Time{}
	a.mu.Unlock()
	return a.VppAPI.Disconnect()
}

// came processes a message from the vswitch. Parts of a dump and events count as well: they show
// that the vswitch is working.
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
