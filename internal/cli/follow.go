package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// followEvery is how often --watch asks an agent for changes.
const followEvery = time.Second

// What can become of a thing, as kubectl names it.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
)

// event is a change of an object.
type event[T any] struct {
	Type   string `json:"type"`
	Object T      `json:"object"`
}

// follow prints the objects and then their changes, until the reader closes the output.
func (l listing[T]) follow(r *getRun, names []string, items []T) error {
	ctx, stop := signal.NotifyContext(r.ctx(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := follower[T]{listing: l, run: r}
	items = f.withSilent(items)
	for {
		if err := f.print(f.changes(items)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		var err error
		if items, _, err = l.items(ctx, r, names); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		items = f.withSilent(items)
	}
}

// follower stores what was printed.
type follower[T any] struct {
	listing[T]
	run   *getRun
	last  map[string]T
	quiet string      // the nodes that do not answer, as it was said
	order []string    // of the names of last
	above *term.Table // was printed last
}

// withSilent adds what nodes had that do not answer now: nothing of it was deleted. It says which nodes
// these are, once.
func (f *follower[T]) withSilent(items []T) []T {
	silent := f.run.missed()
	var names []string
	for _, s := range silent {
		names = append(names, s.node)
		for _, key := range f.order {
			item := f.last[key]
			switch {
			case f.on == nil && f.nodeOf(item) == s.node:
				items = append(items, item)
			case f.on != nil && f.on(item) == s.node: // another agent named it
				if i := slices.IndexFunc(items, func(now T) bool { return f.key(now) == key }); i >= 0 {
					items[i] = item
				}
			}
		}
	}
	if quiet := strings.Join(names, " "); quiet != f.quiet {
		w := term.NewWriter(f.run.errOut)
		if f.quiet = quiet; quiet == "" {
			w.Printf("all nodes answer again\n")
		} else {
			w.Printf("%s\n", errSilent(silent))
		}
	}
	return items
}

// changes returns the changes of objects since its last call.
func (f *follower[T]) changes(items []T) (out []event[T]) {
	now, order := map[string]T{}, []string{}
	for _, item := range items {
		name := f.key(item)
		if _, twice := now[name]; twice {
			continue
		}
		now[name], order = item, append(order, name)
		switch before, ok := f.last[name]; {
		case !ok:
			out = append(out, event[T]{added, item})
		case !f.same(before, item):
			out = append(out, event[T]{modified, item})
		}
	}
	for _, name := range f.order {
		if _, ok := now[name]; !ok {
			out = append(out, event[T]{deleted, f.last[name]})
		}
	}
	f.last, f.order = now, order
	return out
}

// key identifies an item, also among those of several nodes.
func (f *follower[T]) key(item T) string { return f.nodeOf(item) + " " + f.name(item) }

// same reports whether two objects are printed equally.
func (f *follower[T]) same(a, b T) bool {
	if f.still != nil {
		a, b = f.still(a), f.still(b)
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func (f *follower[T]) print(events []event[T]) error {
	r := f.run
	if r.output.isForPeople() {
		return f.printTable(events)
	}
	for _, e := range events {
		var err error
		switch r.output {
		case formatName:
			err = f.printNames(r.out, []T{e.Object})
		case formatYAML:
			if _, err = fmt.Fprintln(r.out, "---"); err == nil {
				err = f.printOne(e)
			}
		default:
			err = f.printOne(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *follower[T]) printOne(e event[T]) error {
	if f.run.events {
		return f.run.output.print(f.run.out, e, nil)
	}
	return f.run.output.print(f.run.out, e.Object, nil)
}

// printTable goes on with the columns of the table above. Where others are needed, as for the first
// admin policy, they get a header line.
func (f *follower[T]) printTable(events []event[T]) error {
	w := f.run.output.writer(f.run.out)
	var rows []T
	var types []string
	flush := func() {
		if len(rows) == 0 {
			return
		}
		t := f.tableFor(rows, f.run.output == formatWide)
		if f.run.events {
			t.Prepend("EVENT", types)
		}
		t.NoHeader = f.run.noHeaders
		if f.above != nil {
			t.Continue(f.above)
		}
		t.Print(w)
		f.above, rows, types = t, nil, nil
	}
	for _, e := range events {
		if e.Type == deleted && !f.run.events {
			flush()
			w.Printf("%s deleted\n", quotedName(f.what, "", f.name(e.Object)))
			continue
		}
		rows, types = append(rows, e.Object), append(types, e.Type)
	}
	flush()
	return w.Err()
}

// ctx is that of the command.
func (r *getRun) ctx() context.Context {
	if ctx := r.cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
