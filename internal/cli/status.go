package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// status is the one thing of its kind.
type status struct{}

func (status) names() []string { return []string{"status"} }

func (status) about() string { return "what the agent is doing, and whether everything is enforced" }

func (status) known(*getRun) ([]string, error) { return nil, nil }

func (status) get(r *getRun, names []string) error {
	if len(names) > 0 {
		return fmt.Errorf("an agent has one status, and no status is named %q", names[0])
	}
	if r.watch || r.labels != nil || r.sortBy != "" {
		return errors.New("status is not a list: --watch, --selector and --sort-by are for lists")
	}
	agents, err := r.allAgents(r.ctx())
	if err != nil {
		return err
	}
	all, err := askAll(r.ctx(), r.options, agents, func(ctx context.Context, c *client) (s view.Status, err error) {
		err = c.get(ctx, "/v1/status", &s)
		s.Node = cmp.Or(c.node, s.Node)
		return s, err
	})
	switch {
	case err != nil:
		return err
	case len(agents) > 1:
		return r.output.print(r.out, all, func(w *term.Writer) {
			t := statusTable(all)
			t.NoHeader = r.noHeaders
			t.Print(w)
		})
	}
	return r.output.print(r.out, all[0], func(w *term.Writer) { writeStatus(w, all[0]) })
}

// statusTable has a row for each node.
func statusTable(all []view.Status) *term.Table {
	t := term.NewTable("NODE", "ENFORCED", "STORE", "REVISION", "PODS", "POLICIES", "PROBLEMS", "RENDERERS", "VERSION").
		Narrow(16, "ENFORCED", "STORE", "RENDERERS").Optional("VERSION", "RENDERERS", "PROBLEMS")
	for _, s := range all {
		var renderers []string
		enforced := term.Cell{Text: "yes", Style: term.Green}
		for _, r := range s.Renderers {
			renderers = append(renderers, r.Name)
			if state := rendererState(r); state.Style != term.Green {
				enforced = term.Cell{Text: r.Name + ": " + state.Text, Style: state.Style}
			}
		}
		switch {
		case enforced.Style != term.Green:
		case s.Unenforced > 0:
			enforced = term.Cell{Text: fmt.Sprintf("in part: %d of %s", s.Unenforced, term.Count(s.Policies, "policy")), Style: term.Red}
		case len(s.Waiting) > 0:
			enforced = term.Cell{Text: "pending: " + term.Count(len(s.Waiting), "pod"), Style: term.Amber}
		case s.Revision < s.Seen:
			enforced = term.Cell{Text: "pending", Style: term.Amber}
		}
		t.Row(s.Node, enforced, storeState(s.Store), s.Revision, s.Local, s.Policies, len(s.Problems), strings.Join(renderers, ","), s.Version)
	}
	return t
}

// storeState is in short how fresh the state is.
func storeState(s view.StoreStatus) term.Cell {
	switch {
	case s.Incomplete != "":
		return term.Cell{Text: "not believed: " + s.Incomplete, Style: term.Red}
	case !s.Following:
		return term.Cell{Text: "not followed: " + s.Error, Style: term.Red}
	case s.Reflector == nil && !s.Unwritten.IsZero():
		return term.Cell{Text: "no active reflector", Style: term.Amber}
	}
	return term.Cell{Text: "followed", Style: term.Green}
}

func writeStatus(w *term.Writer, s view.Status) {
	t := &term.Table{}
	t.Row("version", s.Version)
	t.Row("node", dash(s.Node))
	t.Row("source", s.Source)
	t.Row("revision", fmt.Sprintf("%d enforced, %d seen", s.Revision, s.Seen))
	writeStore(t, s.Store, time.Now())
	t.Row("state", fmt.Sprintf("%s (%d local), %s, %s", term.Count(s.Pods, "pod"), s.Local, term.Count(s.Policies, "policy"), term.Count(s.Sets, "set")))
	if s.Unenforced > 0 {
		t.Row("policies", term.Cell{Text: fmt.Sprintf("%d of %d are partially enforced, see get policies", s.Unenforced, s.Policies), Style: term.Red})
	}
	if n := len(s.Waiting); n > 0 {
		t.Row("waiting", term.Cell{Text: term.Count(n, "pod") + " for new rules: " + term.Few(s.Waiting, 5), Style: term.Amber})
	}
	if n := len(s.Problems); n > 0 {
		t.Row("problems", n)
	}
	for _, r := range s.Renderers {
		state := rendererState(r)
		if !r.InSync && !r.Since.IsZero() && r.Error != "" {
			state.Text += lasting(r.Since, time.Now())
		}
		if long := time.Since(r.BusySince); !r.BusySince.IsZero() && long > time.Second {
			state.Text += fmt.Sprintf("; at work on one change for %s, and later ones wait for it", long.Round(time.Second))
		}
		if n := len(r.Blocked); n > 0 {
			state.Text += fmt.Sprintf("; %s of unknown pods blocked: %s", term.Count(n, "interface"), term.Few(r.Blocked, 5))
		}
		if r.Open > 0 {
			state.Text += "; " + term.Count(r.Open, "connection") + " open that policy no longer permits"
		}
		holds := fmt.Sprintf("%s, %s, %s, applied %s", term.Count(r.Tables, "table"), term.Count(r.Rules, "rule"), term.Count(r.Entries, "entry"), term.Count(int(r.Applied), "time"))
		if r.SessionsMax > 0 {
			holds += fmt.Sprintf(", %d of %s", r.Sessions, term.Count(int(r.SessionsMax), "session"))
		}
		t.Row("renderer "+r.Name, state, holds)
	}
	t.Print(w)
	for _, r := range s.Renderers {
		for _, f := range r.Foreign {
			w.Printf("%s\n", w.Styled(term.Amber, "renderer "+r.Name+": "+f))
		}
	}
	for _, p := range s.Problems {
		w.Printf("%s\n", w.Styled(term.Red, "problem: "+p.Error()))
	}
}

// rendererState says whether what a renderer has installed is the newest state.
func rendererState(r view.RendererStatus) term.Cell {
	switch {
	case r.Error != "":
		return term.Cell{Text: "not in sync: " + r.Error, Style: term.Red}
	case !r.InSync:
		return term.Cell{Text: "nothing enforced yet", Style: term.Amber}
	case r.Dataplane != "":
		return term.Cell{Text: "not in sync: " + r.Dataplane, Style: term.Red}
	}
	return term.Cell{Text: "in sync", Style: term.Green}
}

// writeStore writes how fresh the state is.
func writeStore(t *term.Table, s view.StoreStatus, now time.Time) {
	switch {
	case s.Incomplete != "":
		t.Row("store", term.Cell{Text: "not believed" + lasting(s.Since, now) + ", what was known stays in force: " + s.Incomplete, Style: term.Red})
	case !s.Saved.IsZero():
		t.Row("store", term.Cell{Text: fmt.Sprintf("does not answer; the state of %s is enforced, as it was saved: %s", s.Saved.Format(time.RFC3339), s.Error), Style: term.Red})
	case s.Following:
		t.Row("store", term.Cell{Text: "followed, heard " + ago(s.Heard, now), Style: term.Green})
	case s.Error != "":
		t.Row("store", term.Cell{Text: "not followed" + lasting(s.Since, now) + ": " + s.Error, Style: term.Red})
	}
	switch {
	case s.Reflector != nil:
		t.Row("reflector", s.Reflector.Identity+" leads"+lasting(s.Reflector.Since, now))
	case !s.Unwritten.IsZero():
		t.Row("reflector", term.Cell{Text: "no active reflector" + lasting(s.Unwritten, now) + ": the state may be stale", Style: term.Amber})
	}
}
