package debugapi

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
)

// checkTime limits the calls that read back a dataplane.
const checkTime = 2 * time.Minute

// check reads back the dataplanes, and compares them with what was installed.
func (a *Answers) check(ctx context.Context, _ Filter) ([]view.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	out := []view.Check{}
	for _, r := range a.Renderers() {
		out = append(out, checkOf(ctx, r))
	}
	return out, nil
}

func checkOf(ctx context.Context, r renderer.Renderer) view.Check {
	v := view.Check{Renderer: r.Name()}
	if i, ok := renderer.As[renderer.Inspector](r); ok {
		s := i.State()
		v.Repaired = s.Drift
		for _, f := range s.Foreign {
			v.Foreign = append(v.Foreign, f.String())
		}
	}
	c, ok := renderer.As[renderer.Checker](r)
	if !ok {
		v.Error = "the dataplane of renderer " + r.Name() + " cannot be read back"
		return v
	}
	var err error
	if v.Objects, v.Drift, err = c.Check(ctx); err != nil {
		v.Error = err.Error()
	}
	return v
}
