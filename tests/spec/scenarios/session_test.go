package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// sessions are the commands that send packets which are more than questions.
type sessions struct{ scene }

// talk asks a fleet that keeps sessions about flows, and prints a word for each.
// Stacks without sessions are not asked.
func (s sessions) talk(ctx context.Context, c command, say func(*harness.Cluster, api.Flow) string) (string, error) {
	l := c.line()
	asks, err := s.world.reader().asks(c.Input)
	if err := errors.Join(err, l.end()); err != nil {
		return "", err
	}
	if !s.subject.running.IsStateful() {
		return c.Expected, nil
	}
	f, err := s.subject.wire(ctx)
	if err != nil {
		return "", err
	}
	var out []string
	for _, a := range asks {
		out = append(out, fmt.Sprintf("%s: %s", a, say(f, a.flow)))
	}
	return strings.Join(out, "\n"), nil
}

// establish sends the first packet of flows and the replies.
func (s sessions) establish(ctx context.Context, c command) (string, error) {
	return s.talk(ctx, c, func(f *harness.Cluster, flow api.Flow) string {
		switch {
		case !f.First(flow):
			return "dropped"
		case !f.Reply(flow):
			return "the reply is dropped"
		}
		return "established"
	})
}

// established sends packets of both directions again.
func (s sessions) established(ctx context.Context, c command) (string, error) {
	return s.talk(ctx, c, func(f *harness.Cluster, flow api.Flow) string {
		switch {
		case !f.First(flow):
			return "cut"
		case !f.Reply(flow):
			return "the reply is dropped"
		}
		return "goes on"
	})
}

// send sends the first packet of flows.
func (s sessions) send(ctx context.Context, c command) (string, error) {
	return s.talk(ctx, c, func(f *harness.Cluster, flow api.Flow) string { return arrives(f.First(flow)) })
}

// reply sends the answer to the first packet of flows.
func (s sessions) reply(ctx context.Context, c command) (string, error) {
	return s.talk(ctx, c, func(f *harness.Cluster, flow api.Flow) string { return arrives(f.Reply(flow)) })
}

// collide sends from both ends all packets that could open or answer the flow, twice, as colluding
// ends would. None of them arrives where policy denies both directions.
func (s sessions) collide(ctx context.Context, c command) (string, error) {
	return s.talk(ctx, c, func(f *harness.Cluster, flow api.Flow) string {
		back, there, here := flow.Reverse(), false, false
		for range 2 {
			there = f.First(flow) || there
			here = f.First(back) || here
			there = f.Reply(back) || there
			here = f.Reply(flow) || here
		}
		switch {
		case there && here:
			return "both ends hear the other"
		case there:
			return "the second end hears the first"
		case here:
			return "the first end hears the second"
		}
		return "dropped"
	})
}

func arrives(ok bool) string {
	if ok {
		return "arrives"
	}
	return "dropped"
}
