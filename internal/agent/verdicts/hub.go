// Package verdicts shares what the kernel reports of packets among those who watch, in words.
package verdicts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Source reports packets while it is asked to.
type Source interface {
	SetEventFilter(t xdp.EventFilter) error
	Events(ctx context.Context, f func(xdp.Event)) error
	// Explained returns the pod whose interface a packet was at, and what decided about it.
	Explained(e xdp.Event) (api.PodID, renderer.Decision)
}

// Explain puts an event in words.
type Explain func(ctx context.Context, e xdp.Event, pod api.PodID, d renderer.Decision) view.PacketVerdict

// Hub shares what is reported of packets among those who watch. While nobody does, nothing is
// reported, and packets cost nothing more.
type Hub struct {
	kernel  Source // nil when nobody reports
	most    xdp.EventFilter
	explain Explain
	log     *slog.Logger

	mu     sync.Mutex
	all    map[*subscriber]struct{}
	stop   context.CancelFunc // of the reader, nil while there is none
	ended  chan struct{}      // closed when the newest reader has ended, or there was none
	once   sync.Once          // closes closed
	closed chan struct{}
}

// subscriber is one who watches. What comes while its queue is full is counted.
type subscriber struct {
	permitted bool
	queue     chan view.PacketVerdict // closed when nothing more is told
	broke     error                   // why; set before the queue is closed
	missed    atomic.Uint64
}

// queued is how many verdicts may wait for one who watches.
const queued = 1024

var (
	errNobodyTells = errors.New("verdicts of packets are told by the kernel only: by agents with --renderers xdp, unless --xdp-events is 0; see get rules for counters")
	errEnded       = errors.New("the agent ends")
	errBroken      = errors.New("verdicts of packets cannot be read any more, policy is enforced as before; watch again, and restart the agent if this comes again")
)

// New returns a hub of what a source reports, of so many packets at most, as explain puts it. The
// source is nil where nobody reports.
func New(kernel Source, most xdp.EventFilter, explain Explain, log *slog.Logger) *Hub {
	s := &Hub{kernel: kernel, most: most, explain: explain, log: log, all: map[*subscriber]struct{}{}, ended: make(chan struct{}), closed: make(chan struct{})}
	close(s.ended)
	return s
}

// join begins to watch, and leave ends it.
func (s *Hub) join(permitted bool) (l *subscriber, leave func(), err error) {
	if s.kernel == nil || s.most.PerSecond == 0 {
		return nil, nil, errNobodyTells
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return nil, nil, errEnded
	}
	l = &subscriber{permitted: permitted, queue: make(chan view.PacketVerdict, queued)}
	s.all[l] = struct{}{}
	if err := s.setFilter(); err != nil {
		delete(s.all, l)
		return nil, nil, err
	}
	if s.stop == nil {
		s.startReader()
	}
	return l, func() { s.leave(l) }, nil
}

// leave waits until nothing is read any more for whoever was the last.
func (s *Hub) leave(l *subscriber) {
	if ended := s.drop(l); ended != nil {
		<-ended
	}
}

// drop forgets a listener. After the last one it stops the reader, and returns what is
// closed when that has ended; nil while there is nothing to wait for.
func (s *Hub) drop(l *subscriber) (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[l]; !ok || s.isClosed() {
		return nil // it gets nothing any more
	}
	delete(s.all, l)
	if err := s.setFilter(); err != nil {
		s.log.Warn("the kernel still reports packets that nobody watches", "error", err)
	}
	if len(s.all) > 0 {
		return nil
	}
	return s.stopReader()
}

// isClosed reports whether the agent ends.
func (s *Hub) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// setFilter asks for what those who watch want to know.
func (s *Hub) setFilter() error {
	want := s.most
	want.Permitted = false
	for l := range s.all {
		want.Permitted = want.Permitted || l.permitted
	}
	if len(s.all) == 0 {
		want = xdp.EventFilter{}
	}
	return s.kernel.SetEventFilter(want)
}

// startReader has events read once the reader before has ended.
func (s *Hub) startReader() {
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := s.ended, make(chan struct{})
	s.stop, s.ended = cancel, ended
	go func() {
		defer close(ended)
		<-before
		s.read(ctx)
	}()
}

// stopReader has the reader end, if there is one. What it returns is closed when it has
// ended, for which the reader needs the lock: the caller has to let go of it before it
// waits.
func (s *Hub) stopReader() (ended <-chan struct{}) {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	return s.ended
}

// read hands out events until the context ends.
func (s *Hub) read(ctx context.Context) {
	err := s.kernel.Events(ctx, func(e xdp.Event) { s.report(ctx, e) })
	if ctx.Err() == nil {
		s.log.Warn("verdicts of packets cannot be read", "error", err)
		s.broke(ctx, fmt.Errorf("%w: %w", errBroken, err))
	}
}

// broke ends what all are told who watch: silence would look like a node that drops nothing. Who
// joins then has it tried again.
func (s *Hub) broke(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return // this reader was ended meanwhile; who watches now has another one
	}
	s.stop()
	s.stop = nil
	left := s.all
	s.all = map[*subscriber]struct{}{}
	if err := s.setFilter(); err != nil {
		s.log.Warn("the kernel goes on to tell of packets", "error", err)
	}
	for l := range left {
		l.broke = err
		close(l.queue)
	}
}

// report hands out an event in words.
func (s *Hub) report(ctx context.Context, e xdp.Event) {
	pod, d := s.kernel.Explained(e)
	s.hand(s.explain(ctx, e, pod, d), e.Reason == "")
}

func (s *Hub) hand(v view.PacketVerdict, permitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.all {
		if permitted && !l.permitted {
			continue
		}
		select {
		case l.queue <- v:
		default:
			l.missed.Add(1)
		}
	}
}

// End stops the reader and waits for it, before the kernel is let go of. It may be called
// any number of times.
func (s *Hub) End() { <-s.finish() }

// finish has nobody watch any more. What it returns is closed when the reader has ended.
func (s *Hub) finish() (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once.Do(func() { close(s.closed) })
	if s.stop != nil {
		if err := s.kernel.SetEventFilter(xdp.EventFilter{}); err != nil {
			s.log.Warn("the kernel still reports packets that nobody watches", "error", err)
		}
	}
	return s.stopReader()
}
