package e2e

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// verdict is the certain verdict of policy on a flow.
type verdict int

const (
	undecided verdict = iota // a change is on its way
	permitted
	denied
)

// party is a sender of connections that get the same verdict.
type party struct {
	name    string
	flow    api.Flow
	inside  bool // it is the pod that sends
	keeps   bool // it has one connection, and sends on it
	verdict verdict
	since   time.Time
	epoch   int // grows with every change of the verdict
	opened  bool
}

// request is a packet that waits for its answer.
type request struct {
	*party
	verdict verdict // when it was sent
	epoch   int
	packet  vpptest.Packet
	began   time.Time
	sent    time.Time // last
	tries   int
}

// Requests are tried again as often as this, so long after each other. They are lost when the
// last try was not answered, either.
const (
	tries    = 6
	patient  = time.Second
	forgiven = 10 * time.Second // a denied request may arrive so late
)

// traffic is requests that go through VPP in both directions, and what became of them.
type traffic struct {
	t            testing.TB
	pod, outside vpptest.Cable

	mu      sync.Mutex
	parties []*party
	flying  map[uint32]*request
	mark    uint32
	count   outcome
	first   []string // of what must not be, with what is known of it
}

// outcome is how many requests ended how.
type outcome struct {
	answered, repeated, lost int // of permitted ones
	refused, passed          int // of denied ones
	unjudged                 int // policy changed meanwhile
	slowest                  slow
}

// slow is the answer that came latest.
type slow struct {
	took time.Duration
	at   time.Time
	name string
}

func (o outcome) String() string {
	return fmt.Sprintf("%d answered (%d of them late, the slowest after %s, at %s, of %s), %d lost, %d refused, %d passed, %d met a change",
		o.answered, o.repeated, o.slowest.took.Round(time.Millisecond), o.slowest.at.Format(time.TimeOnly), o.slowest.name, o.lost, o.refused, o.passed, o.unjudged)
}

// add starts a party that sends from now on.
func (w *traffic) add(name string, src, dst netip.Addr, port uint16, v verdict) *party {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &party{name: name, flow: api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: 10_000, DstPort: port}, verdict: v, since: time.Now()}
	w.parties = append(w.parties, p)
	return p
}

// keep is add with one connection for good.
func (w *traffic) keep(name string, inside bool, src, dst netip.Addr) {
	p := w.add(name, src, dst, 8000, permitted)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.keeps, p.inside = true, inside
}

// judge sets the expected verdict on a party from now on.
func (w *traffic) judge(p *party, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.verdict, p.since = v, time.Now()
	p.epoch++
}

// remove stops a party.
func (w *traffic) remove(p *party) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parties = slices.DeleteFunc(w.parties, func(o *party) bool { return o == p })
	p.epoch++
}

// start sends until the function that it returns is called, which waits for what is on its way.
func (w *traffic) start() (stop func()) {
	ending, done := make(chan struct{}), make(chan struct{})
	var receiving, sending sync.WaitGroup
	for _, inside := range []bool{true, false} {
		receiving.Go(func() { w.receive(inside, done) })
	}
	sending.Go(func() { w.send(ending) })
	return sync.OnceFunc(func() {
		close(ending)
		sending.Wait()
		close(done)
		receiving.Wait()
	})
}

// send sends a hundred packets a second, permitted ones and denied ones in turn, and those of
// connections that are kept. When it has to end, it waits for what is on its way.
func (w *traffic) send(ending <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		now := <-tick.C
		w.mu.Lock()
		select {
		case <-ending:
			if len(w.flying) == 0 {
				w.mu.Unlock()
				return
			}
		default:
			w.open(verdict(n%2) + permitted)
			if n%20 == 0 {
				for _, p := range w.parties {
					if p.keeps {
						w.begin(p)
					}
				}
			}
		}
		w.repeat(now)
		w.mu.Unlock()
	}
}

// open has one of the parties with a verdict send.
func (w *traffic) open(v verdict) {
	var may []*party
	for _, p := range w.parties {
		if p.verdict == v && !p.keeps {
			may = append(may, p)
		}
	}
	if len(may) > 0 {
		w.begin(may[rand.IntN(len(may))])
	}
}

// begin sends the first packet of a new connection, or the next one of one that is kept.
func (w *traffic) begin(p *party) {
	const ack = 16
	packet := vswitch.FlowPacket(p.flow)
	switch {
	case !p.keeps:
		if p.flow.SrcPort++; p.flow.SrcPort > 60_000 {
			p.flow.SrcPort = 10_000
		}
	case p.opened:
		packet.TCPFlags = ack
	}
	w.mark++
	r := &request{party: p, verdict: p.verdict, epoch: p.epoch, began: time.Now(), packet: vpptest.Packet{Packet: packet, Mark: w.mark, To: vpptest.CableMAC}}
	w.flying[w.mark] = r
	w.try(r)
}

func (w *traffic) try(r *request) {
	r.tries, r.sent = r.tries+1, time.Now()
	w.write(r.inside, r.packet)
}

func (w *traffic) write(inside bool, p vpptest.Packet) {
	c := w.outside
	if inside {
		c = w.pod
	}
	if err := c.Write(p.Frame()); err != nil {
		w.t.Error(err)
	}
}

// repeat sends again what was not answered, and gives up what was sent often enough.
func (w *traffic) repeat(now time.Time) {
	for mark, r := range w.flying {
		switch waited := now.Sub(r.sent); {
		case r.epoch != r.party.epoch:
			w.count.unjudged++
			delete(w.flying, mark)
		case r.verdict == denied && waited > forgiven:
			w.count.refused++
			delete(w.flying, mark)
		case r.verdict == permitted && waited > patient && r.tries < tries:
			w.try(r)
		case r.verdict == permitted && waited > patient:
			w.count.lost++
			w.note("was lost", r)
			delete(w.flying, mark)
		}
	}
}

// note keeps what is needed to find out why something happened that must not.
func (w *traffic) note(what string, r *request) {
	if len(w.first) < 20 {
		w.first = append(w.first, fmt.Sprintf("%s: a packet of %s (%v, mark %d, %d tries since %s) %s; the verdict is %s old", time.Now().Format(time.StampMilli),
			r.name, r.packet.Packet, r.packet.Mark, r.tries, r.began.Format(time.StampMilli), what, time.Since(r.since).Round(time.Millisecond)))
	}
}

// receive reads what leaves VPP, answers requests and takes answers.
func (w *traffic) receive(inside bool, done <-chan struct{}) {
	const markAt = 14 + 20 + 20 // behind the headers of Ethernet, IPv4 and TCP
	c, buf := w.outside, make([]byte, 2048)
	if inside {
		c = w.pod
	}
	for {
		n, _, err := c.Read(buf)
		select {
		case <-done:
			return
		default:
		}
		if err == nil && n >= markAt+4 && binary.BigEndian.Uint16(buf[12:]) == 0x0800 && buf[23] == byte(api.TCP) {
			w.received(inside, binary.BigEndian.Uint32(buf[markAt:]))
		}
	}
}

func (w *traffic) received(inside bool, mark uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.flying[mark]
	switch {
	case r == nil: // answered before, or of before
	case r.inside != inside:
		if r.verdict == denied && r.epoch == r.party.epoch {
			w.count.passed++
			w.note("passed", r)
			delete(w.flying, mark)
		}
		w.write(inside, vpptest.Packet{Packet: r.packet.Reply(), Mark: mark, To: vpptest.CableMAC})
	case r.verdict == permitted:
		if took := time.Since(r.began); r.epoch == r.party.epoch {
			w.count.answered++
			if took > w.count.slowest.took {
				w.count.slowest = slow{took, time.Now(), r.name}
			}
			if r.tries > 1 {
				w.count.repeated++
			}
		}
		r.opened = true
		delete(w.flying, mark)
	}
}

// soFar returns what became of requests, and the first of what must not be.
func (w *traffic) soFar() (outcome, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count, slices.Clone(w.first)
}
