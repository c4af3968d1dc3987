package bench

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// stream is packets that go through VPP, and what became of them.
type stream struct {
	dst netip.Addr

	mu      sync.Mutex
	denied  []netip.Addr // peers that must be denied
	allowed []netip.Addr // peers that must be permitted
	hoped   []netip.Addr // peers that must be permitted soon
	most    int          // of these, others are not looked at; 0: no limit
	hopedAt map[netip.Addr]time.Time
	joins   []time.Duration // from then until the first packet got through
	sent    map[uint32]probe
	lost    int
	passed  int
	lags    []time.Duration
}

// probe is a packet on its way.
type probe struct {
	src     netip.Addr
	at      time.Time
	allowed bool
	hoped   bool
}

// run sends a packet every millisecond, each fourth from an address that must not get through, and
// another fourth from one that is to get through soon, until stop; it returns when what was sent
// has arrived or is lost.
func (s *stream) run(b *testing.B, from, to vpptest.Cable, stop <-chan struct{}) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.receive(to, done) })
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := uint32(1); ; n++ {
		select {
		case <-tick.C:
			s.send(b, from, n)
			continue
		case <-stop:
		}
		break
	}
	time.Sleep(3 * time.Second)
	close(done)
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.sent {
		if p.allowed {
			s.lost++
		}
	}
	s.lost += len(s.hoped)
}

func (s *stream) send(b *testing.B, from vpptest.Cable, n uint32) {
	s.mu.Lock()
	list, p := s.allowed, probe{at: time.Now(), allowed: true}
	switch {
	case n%4 == 0 && len(s.denied) > 0:
		list, p.allowed = s.denied, false
	case n%4 == 2 && len(s.hoped) > 0:
		s.hoped = append(s.hoped[1:], s.hoped[0])
		list, p.allowed, p.hoped = s.hoped[len(s.hoped)-1:], false, true
	}
	p.src = list[int(n/4)%len(list)]
	s.sent[n] = p
	s.mu.Unlock()
	f := api.Flow{Src: p.src, Dst: s.dst, Protocol: api.UDP, SrcPort: 4000, DstPort: 80}
	packet := vpptest.Packet{Packet: vswitch.FlowPacket(f), Mark: n, To: vpptest.CableMAC}
	if err := from.Write(packet.Frame()); err != nil {
		b.Error(err)
	}
}

// markAt is where a packet has its number: behind the headers of Ethernet, IPv4 and UDP.
const markAt = 14 + 20 + 8

func (s *stream) receive(from vpptest.Cable, done <-chan struct{}) {
	buf := make([]byte, 2048)
	for {
		n, at, err := from.Read(buf)
		select {
		case <-done:
			return
		default:
		}
		if err != nil || n < markAt+4 || buf[23] != byte(api.UDP) || !slices.Equal(buf[30:34], s.dst.AsSlice()) {
			continue
		}
		s.mu.Lock()
		mark := binary.BigEndian.Uint32(buf[markAt:])
		if p, ok := s.sent[mark]; ok {
			delete(s.sent, mark)
			switch {
			case p.allowed:
				s.lags = append(s.lags, at.Sub(p.at))
			case p.hoped:
				s.seen(p.src, at)
			default:
				s.passed++
			}
		}
		s.mu.Unlock()
	}
}

// hope has packets show when an address gets through that is to do so from a time on.
func (s *stream) hope(a netip.Addr, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 0 && len(s.hoped) >= s.most {
		return
	}
	s.hoped = append(s.hoped, a)
	s.hopedAt[a] = since
}

// seen notes that an address got through.
func (s *stream) seen(a netip.Addr, at time.Time) {
	if since, ok := s.hopedAt[a]; ok {
		s.joins = append(s.joins, at.Sub(since))
		s.despair(a)
	}
}

func (s *stream) despair(a netip.Addr) {
	delete(s.hopedAt, a)
	s.hoped = slices.DeleteFunc(s.hoped, func(o netip.Addr) bool { return o == a })
}

// settle waits until all that is to get through did, 5 seconds at most.
func (s *stream) settle() {
	isDone := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.hoped) == 0
	}
	for end := time.Now().Add(5 * time.Second); !isDone() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// joined and left set which peers of the stream may pass from now on, and which may not.
func (s *stream) joined(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = append(slices.Clone(s.allowed), a)
}

// leaving is called before an address is denied, so that nothing is expected of it.
func (s *stream) leaving(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen(a, time.Now())
	s.allowed = slices.DeleteFunc(slices.Clone(s.allowed), func(o netip.Addr) bool { return o == a })
	for n, p := range s.sent { // what is on its way may meet either verdict
		if p.src == a {
			delete(s.sent, n)
		}
	}
}

func (s *stream) left(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = append(slices.Clone(s.denied), a)
}
