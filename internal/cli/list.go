package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/internal/cli/output"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// notFound is what a command names and is not there: each a kind and a name, as in
// `pods "shop/web-0"`.
type notFound []string

// report writes a line for each of them. The answer is negative where there is one.
func (n notFound) report(w io.Writer) error {
	for _, name := range n {
		if _, err := fmt.Fprintf(w, "Error: %s not found\n", term.Lines(name)); err != nil {
			return err
		}
	}
	if len(n) > 0 {
		return errNegative
	}
	return nil
}

// listing is a kind of things that get lists.
type listing[T any] struct {
	what    string // as in the path of the API
	many    string // in messages, where that differs
	single  string // as -o name has it
	aliases []string
	short   string
	table   func(items []T, wide bool) *term.Table
	// name identifies an object, and reference is what commands call it by, where that
	// differs.
	name      func(T) string
	reference func(T) string
	// named reports whether a thing has a name, in a namespace or, where that is empty, in any.
	named      func(item T, namespace, name string) bool
	namespaced bool // a namespace may precede a name
	// node is where an item has the node that it is from, where several are asked; nil where every agent
	// of a cluster answers the same.
	node   func(*T) *string
	prefix string // that a name may have, because rules write it so

	special[T]
}

// special has the features of some kinds only.
type special[T any] struct {
	details  func(w *term.Writer, items []T)         // below a wide table
	labelled func(r *getRun, items []T) ([]T, error) // those that --selector wants
	still    func(T) T                               // without fields whose changes are not significant
	query    func(r *getRun) (url.Values, error)     // the query, in place of names
	empty    string                                  // the message for an empty list of all
	negative func(items []T) bool                    // whether the answer is no
	check    func(names []string) error              // rejects invalid names
	on       func(T) string                          // the node of an item, where node is nil
	// elsewhere replaces what an agent of a cluster knows of other nodes by what these say.
	elsewhere func(ctx context.Context, r *getRun, items []T, query string) ([]T, error)
	askedBy   words // names that people ask by, where its own say nothing
}

func (l listing[T]) names() []string { return append([]string{l.what, l.single}, l.aliases...) }

func (l listing[T]) about() string { return l.short }

// get lists all things of the kind, or those that are named.
func (l listing[T]) get(r *getRun, names []string) error {
	if r.contains != "" && len(names) > 0 {
		return errors.New("--contains is for lists without names: leave the names or the flag out")
	}
	if r.labels != nil && l.labelled == nil {
		return fmt.Errorf("--selector selects pods, what is about them, and namespaces: %s have no labels", cmp.Or(l.many, l.what))
	}
	if r.policy != "" && l.query == nil {
		return fmt.Errorf("--policy is for nodes, not for %s", l.what)
	}
	items, missing, err := l.items(r.ctx(), r, names)
	if err != nil {
		return err
	}
	if r.watch && len(missing) == 0 { // as with kubectl, what is not there is not waited for
		return l.follow(r, names, items)
	}
	if err := l.print(r, items, names); err != nil {
		return err
	}
	if err := missing.report(r.errOut); err != nil {
		return err
	}
	if l.negative != nil && l.negative(items) {
		return errNegative
	}
	return nil
}

func (l listing[T]) print(r *getRun, items []T, names []string) error {
	if r.sortBy != "" {
		if err := output.Sort(items, r.sortBy); err != nil {
			return err
		}
	}
	switch {
	case r.output == formatName:
		return l.printNames(r.out, items)
	case r.word == "policy" && len(names) == 1 && len(items) == 1: // as it was before get had one form
		return r.output.print(r.out, items[0], func(w *term.Writer) { l.write(w, r, items, names) })
	}
	return r.output.print(r.out, items, func(w *term.Writer) { l.write(w, r, items, names) })
}

func (l listing[T]) printNames(out io.Writer, items []T) error {
	w := term.NewWriter(out)
	for _, name := range l.refs(items) {
		w.Printf("%s/%s\n", l.single, name)
	}
	return w.Err()
}

// refs returns what commands call objects by, each once.
func (l listing[T]) refs(items []T) (names []string) {
	seen := map[string]bool{}
	for _, item := range items {
		if name := l.ref(item); !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	return names
}

// ref is what commands call an object by.
func (l listing[T]) ref(item T) string {
	if l.reference != nil {
		return l.reference(item)
	}
	return l.name(item)
}

func (l listing[T]) write(w *term.Writer, r *getRun, items []T, names []string) {
	wide := r.output == formatWide
	switch {
	case len(items) == 0 && len(names) > 0: // each is reported as missing
		return
	case len(items) == 0 && l.empty != "" && r.namespace+r.selector+r.contains == "":
		w.Printf("%s\n", l.empty)
		return
	case len(items) == 0:
		w.Printf("no %s\n", cmp.Or(l.many, l.what))
		return
	}
	t := l.tableFor(items, wide)
	t.NoHeader = r.noHeaders
	t.Print(w)
	if wide && l.details != nil {
		l.details(w, items)
	}
}

// tableFor returns the table, with the nodes of items where several were asked.
func (l listing[T]) tableFor(items []T, wide bool) *term.Table {
	t := l.table(items, wide)
	if len(items) > 0 && l.nodeOf(items[0]) != "" {
		nodes := make([]string, len(items))
		for i, item := range items {
			nodes[i] = l.nodeOf(item)
		}
		t.Prepend("NODE", nodes)
	}
	return t
}

// nodeOf returns the node that an item is from, where several were asked.
func (l listing[T]) nodeOf(item T) string {
	if l.node == nil {
		return ""
	}
	return *l.node(&item)
}

// items asks for the things of the names, or for all with a text in their names. Names that
// nothing has are missing.
func (l listing[T]) items(ctx context.Context, r *getRun, names []string) (items []T, missing notFound, err error) {
	if l.check != nil {
		if err := l.check(names); err != nil {
			return nil, nil, err
		}
	}
	if len(names) == 0 {
		items, err = l.ask(ctx, r, r.namespace, r.contains)
		return items, nil, err
	}
	items = []T{}
	for _, arg := range names {
		in, name, err := l.readName(arg, r.namespace)
		if err != nil {
			return nil, nil, err
		}
		found, err := l.ask(ctx, r, in, name)
		if err != nil {
			return nil, nil, err
		}
		found = slices.DeleteFunc(found, func(v T) bool { return !l.named(v, in, name) })
		if len(found) == 0 {
			missing = append(missing, quotedName(l.what, in, name))
		}
		items = append(items, found...)
	}
	return items, missing, nil
}

// quotedName is how kubectl names what it does not find, behind its namespace if that is known.
func quotedName(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// readName reads a name. A namespace in it must be that of the flag, where both are given.
func (l listing[T]) readName(arg, namespace string) (in, name string, err error) {
	if !l.namespaced {
		return namespace, strings.TrimPrefix(arg, l.prefix), nil
	}
	return splitName(arg, namespace)
}

// splitName reads [NAMESPACE/]NAME beside the flag --namespace.
func splitName(arg, namespace string) (in, name string, err error) {
	in, name, both := strings.Cut(arg, "/")
	switch {
	case !both:
		in, name = namespace, arg
	case in == "" || strings.Contains(name, "/"):
		return "", "", fmt.Errorf("%q is not a name: want NAME or NAMESPACE/NAME", arg)
	case namespace != "" && in != namespace:
		return "", "", fmt.Errorf("%q is not in namespace %s: leave --namespace out, or name what is there", arg, namespace)
	}
	if name == "" {
		return "", "", fmt.Errorf("%q is not a name: want NAME or NAMESPACE/NAME", arg)
	}
	return in, name, nil
}

// ask asks for the things of a namespace, if one is given, with a text in their names.
func (l listing[T]) ask(ctx context.Context, r *getRun, namespace, contains string) ([]T, error) {
	q := url.Values{}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	if contains != "" {
		q.Set("name", contains)
	}
	if l.query != nil {
		var err error
		if q, err = l.query(r); err != nil {
			return nil, err
		}
	}
	items, err := l.answers(ctx, r, "/v1/"+l.what+"?"+q.Encode())
	if err != nil || r.labels == nil {
		return items, err
	}
	return l.labelled(r, items)
}

// answers asks the agent, or those of the cluster.
func (l listing[T]) answers(ctx context.Context, r *getRun, query string) ([]T, error) {
	if l.node == nil {
		c, err := r.agent(ctx)
		if err != nil {
			return nil, err
		}
		items, err := l.answer(ctx, c, query)
		if err == nil && l.elsewhere != nil && c.node != "" {
			return l.elsewhere(ctx, r, items, query)
		}
		return items, err
	}
	agents, err := r.allAgents(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := askAll(ctx, r.options, agents, func(ctx context.Context, c *client) ([]T, error) {
		items, err := l.answer(ctx, c, query)
		for i := range items {
			*l.node(&items[i]) = c.node
		}
		return items, err
	})
	items := append([]T{}, slices.Concat(answers...)...)
	if len(agents) > 1 { // what nodes say of the same thing is together
		slices.SortStableFunc(items, func(a, b T) int { return strings.Compare(l.name(a), l.name(b)) })
	}
	return items, err
}

func (l listing[T]) answer(ctx context.Context, c *client, query string) ([]T, error) {
	items := []T{}
	err := c.get(ctx, query, &items)
	if errors.Is(err, errNotServed) {
		err = fmt.Errorf("the agent on %s does not serve /v1/%s (404): it is of an earlier version than this sluicectl, so update the agent", c.where(), l.what)
	}
	return items, err
}

// known returns the names of all things.
func (l listing[T]) known(r *getRun) (names []string, err error) {
	if l.askedBy != nil {
		return l.askedBy(r)
	}
	items, err := l.ask(r.ctx(), r, r.namespace, "")
	names = l.refs(items)
	if r.namespace != "" {
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], r.namespace+"/")
		}
	}
	return names, err
}
