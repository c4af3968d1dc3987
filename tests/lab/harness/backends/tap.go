package backends

import (
	"encoding/binary"
	"errors"
	"sync"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
)

// errInjected is the error of an injected failure.
var errInjected = errors.New("injected failure")

// messages defines what the messages of a renderer mean to a tap.
type messages struct {
	changes []govpp.Message // they change something
	reads   []govpp.Message // they only read, and can fail
	// passes reports whether a change neither counts nor fails; nil: every change counts.
	passes func(data []byte) bool
	// refused makes of a change one that the dataplane refuses; nil: what is to fail is lost.
	refused func(data []byte) []byte
}

// aclMessages are those of the ACL renderer.
var aclMessages = messages{
	changes: []govpp.Message{&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{}},
	reads:   []govpp.Message{&acl.ACLDump{}, &acl.ACLInterfaceListDump{}, &interfaces.SwInterfaceDump{}},
}

// tap is a proxy between GoVPP and a dataplane that counts and fails messages.
type tap struct {
	adapter.VppAPI
	kinds   messages
	changes map[uint16]bool // message ids that change something
	reads   map[uint16]bool // message ids that only read and can fail

	mu       sync.Mutex
	ops      int
	failAt   int             // counts down to the message that fails; 0 for none
	look     func()          // see watch
	changing map[uint32]bool // contexts of changes without an answer
}

func newTap(v adapter.VppAPI, m messages) *tap {
	return &tap{VppAPI: v, kinds: m, changing: map[uint32]bool{}}
}

// Connect learns the numbers of messages, which are known from then on.
func (t *tap) Connect() error {
	if err := t.VppAPI.Connect(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes, t.reads = t.ids(t.kinds.changes), t.ids(t.kinds.reads)
	return nil
}

func (t *tap) ids(messages []govpp.Message) map[uint16]bool {
	out := make(map[uint16]bool, len(messages))
	for _, m := range messages {
		if id, err := t.GetMsgID(m.GetMessageName(), m.GetCrcString()); err == nil {
			out[id] = true
		}
	}
	return out
}

// SendMsg counts a message. A test can make it lose or refuse the message.
func (t *tap) SendMsg(ctx uint32, data []byte) error {
	id := binary.BigEndian.Uint16(data)
	if t.fails(id, data) {
		if !t.changes[id] || t.kinds.refused == nil {
			return errInjected
		}
		data = t.kinds.refused(data)
	}
	t.mu.Lock()
	if t.look != nil && t.changes[id] {
		t.changing[ctx] = true
	}
	t.mu.Unlock()
	return t.VppAPI.SendMsg(ctx, data)
}

// watch has look called after every change, before the dataplane takes the next message: an embedded
// one answers in the goroutine that makes changes.
func (t *tap) watch(look func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look = look
}

// contextAt is where answers have the context of their request.
const contextAt = 2

// SetMsgCallback looks at the answers, too.
func (t *tap) SetMsgCallback(cb adapter.MsgCallback) {
	t.VppAPI.SetMsgCallback(func(id uint16, data []byte) {
		if look := t.answered(data); look != nil {
			look()
		}
		cb(id, data)
	})
}

// answered returns what to call when the answer to a change has come.
func (t *tap) answered(data []byte) func() {
	if len(data) < contextAt+4 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx := binary.BigEndian.Uint32(data[contextAt:])
	if !t.changing[ctx] {
		return nil
	}
	delete(t.changing, ctx)
	return t.look
}

// fails counts a message, and reports whether it is to fail.
func (t *tap) fails(id uint16, data []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changes := t.changes[id] && (t.kinds.passes == nil || !t.kinds.passes(data))
	if t.failAt > 0 && (changes || t.reads[id]) {
		if t.failAt--; t.failAt == 0 {
			return true
		}
	}
	if changes {
		t.ops++
	}
	return false
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
