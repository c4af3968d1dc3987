package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/term"
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
	aliases []string
	short   string
	arg     string // what a thing is named by
	table   func([]T) *term.Table
	// named reports whether a thing has a name, in a namespace or, where that is empty, in any.
	named      func(item T, namespace, name string) bool
	namespaced bool   // a name may stand behind its namespace
	prefix     string // that a name may have, because rules write it so
}

// command lists all things of the kind, or those that are named.
func (l listing[T]) command(o *options, namespace *string) *cobra.Command {
	var contains string
	cmd := &cobra.Command{
		Use:     l.what + " [" + l.arg + "...]",
		Aliases: l.aliases,
		Short:   l.short,
		Example: "  sluicectl get " + l.what + " -o json",
		RunE: func(cmd *cobra.Command, names []string) error {
			if contains != "" && len(names) > 0 {
				return errors.New("--contains is for lists without names: leave the names or the flag out")
			}
			items, missing, err := l.items(cmd.Context(), o.client(), *namespace, contains, names)
			if err != nil {
				return err
			}
			if err := o.output.print(o.out, items, func(w *term.Writer) { l.write(w, items, names, o.output == formatWide) }); err != nil {
				return err
			}
			return missing.report(cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&contains, "contains", "", "only those with this text in their names, or in the meaning of a set; of rules in the name of their table; of endpoints also in that of the interface")
	return cmd
}

func (l listing[T]) write(w *term.Writer, items []T, names []string, wide bool) {
	if len(items) == 0 {
		if len(names) == 0 { // else each is reported as missing
			w.Printf("no %s\n", l.what)
		}
		return
	}
	l.table(items).Print(w)
	if wide {
		writeDetails(w, items)
	}
}

// items asks for the things of the names, or for all with a text in their names. Names that
// nothing has are missing.
func (l listing[T]) items(ctx context.Context, c *client, namespace, contains string, names []string) (items []T, missing notFound, err error) {
	if len(names) == 0 {
		items, err = l.ask(ctx, c, namespace, contains)
		return items, nil, err
	}
	items = []T{}
	for _, arg := range names {
		in, name, err := l.reference(arg, namespace)
		if err != nil {
			return nil, nil, err
		}
		found, err := l.ask(ctx, c, in, name)
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

// reference reads a name. A namespace in it must be that of the flag, where both are given.
func (l listing[T]) reference(arg, namespace string) (in, name string, err error) {
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
		return "", "", fmt.Errorf("%q is no name: want NAME or NAMESPACE/NAME", arg)
	case namespace != "" && in != namespace:
		return "", "", fmt.Errorf("%q is not in namespace %s: leave --namespace out, or name what is there", arg, namespace)
	}
	if name == "" {
		return "", "", fmt.Errorf("%q is no name: want NAME or NAMESPACE/NAME", arg)
	}
	return in, name, nil
}

// ask asks for the things of a namespace, if one is given, with a text in their names.
func (l listing[T]) ask(ctx context.Context, c *client, namespace, contains string) ([]T, error) {
	q := url.Values{}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	if contains != "" {
		q.Set("name", contains)
	}
	items := []T{}
	err := c.get(ctx, "/v1/"+l.what+"?"+q.Encode(), &items)
	return items, err
}
