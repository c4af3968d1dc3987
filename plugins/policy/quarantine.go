package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/renderer"
)

// quarantine lets renderers block the interfaces of pods, as long as there is nothing that they
// could be told.
func (p *Plugin) quarantine(ctx context.Context) error {
	work, cancel := context.WithTimeout(ctx, p.CommitTimeout)
	defer cancel()
	var outcomes []bool // of the renderers that could look
	err := p.answering(work, func(ctx context.Context) error {
		var errs []error
		for _, r := range p.Renderers {
			q, ok := renderer.As[renderer.Quarantiner](r)
			if !ok {
				continue
			}
			holdsRules, err := q.Quarantine(ctx)
			if err != nil {
				errs = append(errs, fmt.Errorf("renderer %s: %w", r.Name(), err))
				continue
			}
			outcomes = append(outcomes, holdsRules)
		}
		return errors.Join(errs...)
	})
	for _, holdsRules := range outcomes {
		if p.Observer.Quarantine != nil {
			p.Observer.Quarantine(holdsRules)
		}
	}
	p.retryAt = time.Time{}
	p.schedule(err)
	if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != p.unblocked {
		p.unblocked = text
		p.Log.Warn("interfaces of pods could not be blocked before the first state; it is tried again", "error", err)
	}
	return err
}
