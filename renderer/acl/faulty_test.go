package acl_test

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"

	"github.com/sluice-net/sluice/internal/vswitch"
)

// fault is what happens to a call.
type fault int

const (
	refused fault = iota // nothing is done, and the answer is an error; requests that only read are lost
	lost                 // it cannot be sent
	ignored              // nothing is done and nothing is answered, nor to later calls when the request only reads
	mute                 // it is done, and nothing is answered; otherwise as ignored
	partial              // only one of the two lists of an interface is set, and the answer is an error; otherwise as refused
	hungUp               // the connection is lost until the next one
	allFaults
)

func (f fault) String() string {
	return [...]string{"refused", "lost", "ignored", "mute", "partial", "hung up"}[f]
}

// Offsets of fields in requests and answers.
const (
	requestBody = 10
	answerBody  = 6
)

// faulty is a proxy between GoVPP and the vswitch that injects a fault into one call. It counts all
// messages of the renderer except health checks.
type faulty struct {
	adapter.VppAPI
	sw *vswitch.Switch

	mu      sync.Mutex
	reads   map[uint16]bool // message IDs that change nothing and count
	changes map[uint16]bool
	lists   uint16 // message ID of acl_interface_set_acl_list
	in      int    // calls until the fault; 0 for none
	fault   fault
	answer  map[uint32]fault // faults for answers, by context
	down    bool             // all sends fail
	deaf    bool             // no answers arrive
}

func newFaulty(sw *vswitch.Switch) *faulty {
	return &faulty{VppAPI: sw.Adapter(), sw: sw, answer: make(map[uint32]fault)}
}

// failNext injects a fault into the n-th call from now; 0 cancels it.
func (f *faulty) failNext(n int, what fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in, f.fault = n, what
}

// Connect implements adapter.VppAPI.
func (f *faulty) Connect() error {
	if err := f.VppAPI.Connect(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.deaf = false, false
	f.changes = f.ids(&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{})
	f.reads = f.ids(&acl.ACLDump{}, &acl.ACLInterfaceListDump{}, &interfaces.SwInterfaceDump{}, &vlib.CliInband{}, &vpe.ShowVersion{})
	for id := range f.ids(&acl.ACLInterfaceSetACLList{}) {
		f.lists = id
	}
	return nil
}

func (f *faulty) ids(messages ...govpp.Message) map[uint16]bool {
	out := make(map[uint16]bool)
	for _, m := range messages {
		if id, err := f.GetMsgID(m.GetMessageName(), m.GetCrcString()); err == nil {
			out[id] = true
		}
	}
	return out
}

// SendMsg implements adapter.VppAPI.
func (f *faulty) SendMsg(context uint32, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := binary.BigEndian.Uint16(data)
	if f.down {
		return io.EOF
	}
	if f.in > 0 && (f.changes[id] || f.reads[id]) {
		if f.in--; f.in == 0 {
			return f.fail(id, context, data)
		}
	}
	return f.send(context, data)
}

func (f *faulty) send(context uint32, data []byte) error {
	if f.deaf {
		return nil
	}
	return f.VppAPI.SendMsg(context, data)
}

// fail injects the fault into a message.
func (f *faulty) fail(id uint16, context uint32, data []byte) error {
	switch {
	case f.fault == hungUp:
		f.down = true
		return io.EOF
	case f.fault == lost, f.reads[id] && f.fault != ignored && f.fault != mute:
		return errInjected
	case f.reads[id]: // a lost request of a dump is lost together with its control ping
		f.deaf = true
		return nil
	case f.fault == ignored:
		return nil
	case f.fault == mute:
		f.answer[context] = mute
	case f.fault == partial && id == f.lists:
		f.answer[context] = partial
		data = f.onlyOutput(data)
	default:
		// A request with an ACL or interface that does not exist is answered with an error.
		data = slices.Clone(data)
		for i := requestBody; i < min(requestBody+4, len(data)); i++ {
			data[i] = 0xfe
		}
	}
	return f.send(context, data)
}

// onlyOutput changes a message so that it sets the output list and keeps the input list.
func (f *faulty) onlyOutput(data []byte) []byte {
	body := data[requestBody:]
	index, inputs := binary.BigEndian.Uint32(body), int(body[5])
	out := slices.Clone(data[:requestBody+4])
	var now []uint32
	for _, n := range f.sw.Interfaces() {
		if n.Index == index {
			now = n.Inputs
		}
	}
	outputs := body[6+4*inputs:]
	out = append(out, byte(len(now)+len(outputs)/4), byte(len(now)))
	for _, i := range now {
		out = binary.BigEndian.AppendUint32(out, i)
	}
	return append(out, outputs...)
}

// SetMsgCallback implements adapter.VppAPI.
func (f *faulty) SetMsgCallback(cb adapter.MsgCallback) {
	f.VppAPI.SetMsgCallback(func(id uint16, data []byte) {
		switch what, ok := f.answerTo(data); {
		case ok && what == mute:
			return
		case ok && what == partial:
			data = slices.Clone(data)
			binary.BigEndian.PutUint32(data[answerBody:], 1)
		}
		cb(id, data)
	})
}

// answerTo returns the fault for an answer, if any.
func (f *faulty) answerTo(data []byte) (fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(data) < answerBody {
		return 0, false
	}
	context := binary.BigEndian.Uint32(data[2:])
	what, ok := f.answer[context]
	delete(f.answer, context)
	return what, ok
}
