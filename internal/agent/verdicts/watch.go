package verdicts

import (
	"context"

	"github.com/sluice-net/sluice/internal/view"
)

// Watch sends the verdicts that are asked for, first those that are kept, until ctx ends, the agent
// does, or send fails. It calls begun once it watches, and returns an error when it cannot. Where
// verdicts cannot be reported any more before ctx ends, the last that is sent is a view.WatchEnd.
func (s *Hub) Watch(ctx context.Context, q view.Watch, begun func(), send func(v any) error) error {
	f, err := newFilter(q)
	if err != nil {
		return err
	}
	if q.Past {
		return s.replay(ctx, &f, begun, send)
	}
	if q.Since > 0 {
		if err := s.keeps(f.needs()); err != nil {
			return err
		}
	}
	l, kept, leave, err := s.join(f)
	if err != nil {
		return err
	}
	defer leave()
	begun()
	if s.send(ctx, kept, send) != nil {
		return nil
	}
	s.follow(ctx, l, send)
	return nil
}

// replay sends the verdicts that are kept.
func (s *Hub) replay(ctx context.Context, f *filter, begun func(), send func(v any) error) error {
	kept, err := s.past(f)
	if err != nil {
		return err
	}
	begun()
	_ = s.send(ctx, kept, send) // whoever asked may have gone
	return nil
}

func (s *Hub) send(ctx context.Context, kept []*record, send func(v any) error) error {
	for _, t := range kept {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := send(t.view(s.config.Node)); err != nil {
			return err
		}
	}
	return nil
}

// follow sends what comes.
func (s *Hub) follow(ctx context.Context, l *subscriber, send func(v any) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case t, ok := <-l.queue:
			if !ok {
				_ = send(view.WatchEnd{Error: l.broke.Error()}) // whoever asked may have gone
				return
			}
			v := t.view(s.config.Node)
			v.Missed += l.missed.Swap(0)
			if send(v) != nil {
				return
			}
		}
	}
}
