package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/acl"
)

// errNoDataplane says that packets cannot be sent through a VPP of its own.
var errNoDataplane = errors.New("packets can be injected into the embedded dataplane only (sluice-agent dev)")

// filter says which items a list is to have.
type filter struct{ namespace, name string }

// wants says whether an item passes; both parts are optional.
func (f filter) wants(namespace, name string) bool {
	return (f.namespace == "" || f.namespace == namespace) && strings.Contains(name, f.name)
}

func (a *Agent) pods(ctx context.Context, f filter) ([]view.Pod, error) {
	s, err := a.node.Plugin.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	unplugged, causes := a.node.Dump().Pending, a.causes()
	out := []view.Pod{}
	for _, p := range s.Pods {
		if !f.wants(p.ID.Namespace, p.ID.Name) {
			continue
		}
		v := podView(p)
		v.Problems = a.withCauses(causes["Pod "+p.ID.String()], p.Problems)
		if v.State == podEnforced && slices.Contains(unplugged, "pod "+p.ID.String()) {
			v.State = podUnplugged
		}
		out = append(out, v)
	}
	return out, nil
}

func podView(p policy.Pod) view.Pod {
	v := view.Pod{Pod: p.ID, Node: p.Node, Addresses: p.IPs, State: podState(p), Policies: p.Policies, InterfaceTag: acl.InterfaceTag(p.ID)}
	if p.Ingress != nil {
		v.Isolated = append(v.Isolated, api.Ingress)
	}
	if p.Egress != nil {
		v.Isolated = append(v.Isolated, api.Egress)
	}
	if len(p.Labels) > 0 {
		v.Labels = map[string]string{}
		for _, l := range p.Labels {
			v.Labels[l.Key] = l.Value
		}
	}
	return v
}

// The states of local pods with an address.
const (
	podEnforced  = "enforced"
	podUnplugged = "no interface" // in the vswitch yet, so that nothing can be enforced
)

func podState(p policy.Pod) string {
	switch {
	case p.State != "live":
		return "ignored: " + p.State
	case !p.Local:
		return "remote"
	case !p.Enforced:
		return "pending"
	}
	return podEnforced
}

func (a *Agent) sets(ctx context.Context, f filter) ([]view.Set, error) {
	s, err := a.node.Plugin.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := []view.Set{}
	for _, set := range s.Sets {
		if strings.Contains(set.ID.String(), f.name) || strings.Contains(set.Meaning, f.name) {
			out = append(out, view.Set{ID: set.ID, Meaning: set.Meaning, Members: set.Members})
		}
	}
	return out, nil
}

func (a *Agent) tables(_ context.Context, f filter) ([]view.Table, error) {
	out := []view.Table{}
	for _, t := range a.node.Tables() {
		if !strings.Contains(t.Name, f.name) || f.namespace != "" && !inNamespace(t.Pods, f.namespace) {
			continue
		}
		kind := "local"
		if len(t.Pods) == 0 {
			kind = "global"
		}
		out = append(out, view.Table{
			Renderer: a.node.RendererName(), Table: t.Name, Kind: kind, Pods: t.Pods, Rules: len(t.Rules), Entries: t.Entries, Objects: t.Objects,
		})
	}
	return out, nil
}

func inNamespace(pods []api.PodID, ns string) bool {
	return slices.ContainsFunc(pods, func(p api.PodID) bool { return p.Namespace == ns })
}

func (a *Agent) rules(_ context.Context, f filter) ([]view.Rule, error) {
	out := []view.Rule{}
	for _, t := range a.node.DumpHits().Tables {
		if !strings.Contains(t.Name, f.name) || f.namespace != "" && !inNamespace(t.Pods, f.namespace) {
			continue
		}
		for i, r := range t.Rules {
			v := view.Rule{Renderer: a.node.RendererName(), Table: t.Name, Index: i, Rule: r}
			if i < len(t.Origins) {
				v.Origins = t.Origins[i]
			}
			if t.Hits != nil {
				v.Hits = &t.Hits[i]
				if with := t.CountedWith[i]; with >= 0 && with != i {
					v.Hits, v.CountedWith = nil, &t.CountedWith[i]
				}
			}
			out = append(out, v)
		}
	}
	return out, nil
}

func (a *Agent) status(ctx context.Context, _ filter) (view.Status, error) {
	s, err := a.node.Plugin.Snapshot(ctx)
	if err != nil {
		return view.Status{}, err
	}
	v := view.Status{
		Version: version.Get().Version, Node: a.cfg.Node, Source: a.source, Revision: s.Status.Revision, Seen: s.Status.Seen,
		Pods: len(s.Pods), Policies: len(s.Policies), Sets: len(s.Sets), Problems: a.allProblems(s.Problems), Store: a.storeStatus(),
	}
	v.Unenforced = unenforced(s.Policies, v.Problems)
	for _, p := range s.Pods {
		if p.Local {
			v.Local++
		}
	}
	dump := a.node.Dump()
	for _, r := range s.Status.Renderers {
		rv := view.RendererStatus{Name: r.Name, InSync: r.InSync, Commits: r.Commits, Error: r.Error, Since: r.Since, Tables: len(dump.Tables)}
		for _, t := range dump.Tables {
			rv.Rules += len(t.Rules)
			rv.Entries += t.Entries
		}
		if a.node.Session != nil && r.Name == a.node.Session.Name() {
			rv.Open = a.node.Session.Dump().Open
		}
		v.Renderers = append(v.Renderers, rv)
	}
	return v, nil
}
