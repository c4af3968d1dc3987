package stacks

import (
	"encoding/binary"
	"errors"
	"sync"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
)

// errInjected is the error of a call that was told to fail.
var errInjected = errors.New("injected failure")

// tap stands between GoVPP and a dataplane, and counts and fails messages.
type tap struct {
	adapter.VppAPI
	changes map[uint16]bool // message ids that change something
	reads   map[uint16]bool // message ids that only read and can fail

	mu     sync.Mutex
	ops    int
	failAt int // counts down to the message that fails; 0 for none
}

func newTap(v adapter.VppAPI) *tap { return &tap{VppAPI: v} }

// Connect learns the numbers of messages, which are known from then on.
func (t *tap) Connect() error {
	if err := t.VppAPI.Connect(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = t.ids(&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{})
	t.reads = t.ids(&acl.ACLDump{}, &acl.ACLInterfaceListDump{}, &interfaces.SwInterfaceDump{})
	return nil
}

func (t *tap) ids(messages ...govpp.Message) map[uint16]bool {
	out := make(map[uint16]bool, len(messages))
	for _, m := range messages {
		if id, err := t.GetMsgID(m.GetMessageName(), m.GetCrcString()); err == nil {
			out[id] = true
		}
	}
	return out
}

// SendMsg counts a message, and loses it when it is told to.
func (t *tap) SendMsg(ctx uint32, data []byte) error {
	if err := t.count(binary.BigEndian.Uint16(data)); err != nil {
		return err
	}
	return t.VppAPI.SendMsg(ctx, data)
}

func (t *tap) count(id uint16) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failAt > 0 && (t.changes[id] || t.reads[id]) {
		if t.failAt--; t.failAt == 0 {
			return errInjected
		}
	}
	if t.changes[id] {
		t.ops++
	}
	return nil
}

func (t *tap) failNext(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failAt = n
}

func (t *tap) operations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops
}
