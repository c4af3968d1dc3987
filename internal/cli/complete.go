package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/cli/traffic"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// completionTime bounds how long an agent may take to complete a word.
const completionTime = 2 * time.Second

// words returns the possible completions, as the agent knows them.
type words func(r *getRun) ([]string, error)

// flagWords are the values of flags: of all commands, or of the one that is named before the flag.
var flagWords = map[string]words{
	"namespace":      namespaces,
	"from-namespace": namespaces,
	"to-namespace":   namespaces,
	"matrix from":    namespaces,
	"matrix to":      namespaces,
	"graph from":     namespaces,
	"graph to":       namespaces,
	"policy":         policyList.known,
	"pod":            podNames,
	"from-pod":       podNames,
	"to-pod":         podNames,
	"label":          podLabels,
	"selector":       podLabels,
	"from-label":     podLabels,
	"to-label":       podLabels,
	"output":         always(formats...),
	"verdict":        always(traffic.Verdicts...),
	"direction":      always(traffic.Directions...),
	"protocol":       always(traffic.Protocols...),
	"through":        always("oracle", "acl", "session", "xdp"),
}

// podLabels are the labels that pods have.
func podLabels(r *getRun) (out []string, err error) {
	pods, err := podList.ask(r.ctx(), r, r.namespace, "")
	for _, p := range pods {
		for k, v := range p.Labels {
			out = append(out, k+"="+v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), err
}

func always(list ...string) words {
	return func(*getRun) ([]string, error) { return list, nil }
}

// namespaces are those that have pods or policies.
func namespaces(r *getRun) (out []string, err error) {
	pods, err := podList.ask(r.ctx(), r, "", "")
	if err != nil {
		return nil, err
	}
	policies, err := policyList.ask(r.ctx(), r, "", "")
	for _, p := range pods {
		out = append(out, p.Pod.Namespace)
	}
	for _, p := range policies {
		out = append(out, p.Policy.Namespace)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(s string) bool { return s == "" }), err
}

// completeFlags has the flags of all commands completed.
func (o *options) completeFlags(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		w, ok := flagWords[f.Name]
		if !ok {
			w, ok = flagWords[cmd.Name()+" "+f.Name]
		}
		if ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				found, directive := o.complete(cmd, getFlags{}, w)
				if f.Name == "output" {
					directive |= cobra.ShellCompDirectiveNoSpace // an argument may follow
				}
				if f.Name == "from" {
					directive &^= cobra.ShellCompDirectiveNoFileComp // it may be a bundle
				}
				return found, directive
			}) // the flag is there, and has none yet
		}
	})
	for _, c := range cmd.Commands() {
		o.completeFlags(c)
	}
}

// complete asks for words, for a short time. Words that a shell would run, or a terminal obey, are
// none that anybody wants.
func (o *options) complete(cmd *cobra.Command, f getFlags, w words) ([]string, cobra.ShellCompDirective) {
	r, err := o.getRun(cmd, f)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(r.ctx(), completionTime)
	defer cancel()
	cmd.SetContext(ctx)
	found, err := w(r)
	if err != nil {
		cobra.CompErrorln(term.Lines(err.Error()))
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(slices.Clone(found), func(s string) bool { return !isPlain(s) }), cobra.ShellCompDirectiveNoFileComp
}

// isPlain reports whether a word has no special meaning to a shell, and is no flag.
func isPlain(word string) bool {
	return len(word) < 300 && !strings.HasPrefix(word, "-") && strings.IndexFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-._/=: ", r) && (r > 'z' || r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a')
	}) < 0
}

// completeGet completes kinds, and then names.
func (o *options) completeGet(cmd *cobra.Command, f getFlags, args []string, kinds []resource) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		var out []string
		for _, k := range kinds {
			out = append(out, cobra.CompletionWithDesc(k.names()[0], k.about()))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	kind, _, err := resourceOf(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.complete(cmd, f, func(r *getRun) ([]string, error) {
		names, err := kind.known(r)
		return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(args[1:], n) }), err
	})
}

// completeFlow completes both ends of a flow to pods; behind the destination a port follows.
func (o *options) completeFlow(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	pods, directive := o.complete(cmd, getFlags{}, podList.known)
	if len(args) == 1 {
		for i := range pods {
			pods[i] += ":"
		}
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return pods, directive
}
