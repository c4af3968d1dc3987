package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/cache"
	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
	"github.com/sluice-net/sluice/renderer"
)

// Snapshot is everything that a Plugin knows, after one of its transactions. It is
// immutable, sorted, and shared by all who ask while nothing changes. Directions
// are the pod's.
type Snapshot struct {
	of uint64 // the number of the state that it is of

	Status     Status      `json:"status"`
	Namespaces []Namespace `json:"namespaces"`
	Pods       []Pod       `json:"pods"`
	Policies   []Policy    `json:"policies"`
	Sets       []Set       `json:"sets"`
	// Problems are those of all objects, and what of policies stacks cannot enforce.
	Problems []api.Problem `json:"problems,omitempty"`
}

// Labels are the labels of an object, sorted by key.
type Labels = intent.Labels

// Namespace is a namespace of the cluster.
type Namespace struct {
	Name     string `json:"name"`
	Known    bool   `json:"known"` // its Namespace object has arrived
	Labels   Labels `json:"labels,omitempty"`
	Pods     int    `json:"pods"`
	Groups   int    `json:"groups"` // of pods that policies cannot tell apart
	Policies int    `json:"policies"`
}

// Pod is a pod of the cluster. Addresses, labels and ports are those of a live one.
type Pod struct {
	ID         api.PodID       `json:"id"`
	State      string          `json:"state"` // "live", "host network" or "finished"
	Node       string          `json:"node,omitempty"`
	IPs        []netip.Addr    `json:"ips,omitempty"`
	Labels     Labels          `json:"labels,omitempty"`
	NamedPorts []api.NamedPort `json:"namedPorts,omitempty"`
	Local      bool            `json:"local"`
	// Enforced says that renderers were told of the pod: it is local and has an
	// address. What follows is known of such pods only.
	Enforced bool `json:"enforced"`
	// Waiting says that the pod has other rules yet than those that its policies come to, see
	// Status.Waiting.
	Waiting  bool           `json:"waiting,omitempty"`
	Policies []api.PolicyID `json:"policies,omitempty"`
	// The rules of the directions, nil when the direction is not isolated.
	Ingress *renderer.RuleList `json:"ingress,omitempty"`
	Egress  *renderer.RuleList `json:"egress,omitempty"`
	// Problems are those of the pod's object.
	Problems []api.Problem `json:"problems,omitempty"`
}

// Policy is a policy of the cluster.
type Policy struct {
	Place api.Place `json:"-"` // among all policies
	Rules int       `json:"-"`
	// The directions that it isolates; a policy of administrators isolates none.
	IsolatesIngress bool `json:"-"`
	IsolatesEgress  bool `json:"-"`
	// Readable is false when it is not known whom the policy is for: then it is for no pod.
	Readable bool         `json:"-"`
	ID       api.PolicyID `json:"id"`
	Subject  string       `json:"subject"`        // its selector, in the style of kubectl
	Pods     []api.PodID  `json:"pods,omitempty"` // local pods that it applies to
	// Problems say why it is not enforced in full; without any it is, as far as
	// renderers are in sync.
	Problems []api.Problem `json:"problems,omitempty"`
	// Notes say what matches less than it might, without being a mistake.
	Notes []api.Problem `json:"notes,omitempty"`
}

// Set is an address set that rules may name.
type Set struct {
	ID      api.SetID      `json:"id"`
	Meaning string         `json:"meaning"` // a selector, or what it was made of
	Members []netip.Prefix `json:"members,omitempty"`
	Users   []api.PolicyID `json:"users,omitempty"` // of sets that selectors stand for
}

// layers are those of the flow, in its order. None of them knows another.
type layers struct {
	cache        *cache.Cache
	processor    *processor.Processor
	configurator *configurator.Configurator
}

// snapshot collects the state of a node; reports are those of renderers.
func (l *layers) snapshot(node string, reports []api.Problem) *Snapshot {
	findings := l.processor.Findings()
	s := &Snapshot{Namespaces: []Namespace{}}
	for _, ns := range l.cache.Namespaces() {
		s.Namespaces = append(s.Namespaces, Namespace(ns))
	}
	s.Problems = slices.Concat(l.cache.Problems(), findings.Problems, reports)
	byObject := map[string][]api.Problem{}
	for _, problem := range s.Problems {
		byObject[problem.Object] = append(byObject[problem.Object], problem)
	}
	dump := l.configurator.Dump()
	enforced := make(map[api.PodID]*configurator.PodDump, len(dump.Pods))
	applied := map[api.PolicyID][]api.PodID{}
	for i := range dump.Pods {
		pod := &dump.Pods[i]
		enforced[pod.Pod] = pod
		for _, id := range pod.Policies {
			applied[id] = append(applied[id], pod.Pod)
		}
	}
	for _, info := range l.cache.Pods() {
		pod := Pod{
			ID: info.ID, State: info.State, Node: info.Node, IPs: info.IPs, Labels: info.Labels, NamedPorts: info.NamedPorts,
			Local: node == "" || info.Node == node,
		}
		if len(byObject) > 0 {
			pod.Problems = byObject[model.ID{Kind: model.KindPod, Namespace: info.ID.Namespace, Name: info.ID.Name}.String()]
		}
		if d := enforced[info.ID]; d != nil {
			pod.Waiting = d.Waiting
			pod.Enforced, pod.Policies, pod.Ingress, pod.Egress = true, d.Policies, d.Ingress, d.Egress
		}
		s.Pods = append(s.Pods, pod)
	}
	s.Policies = l.policies(applied, byObject, findings.Notes)
	s.Sets = l.sets(dump.Sets)
	return s
}

func (l *layers) policies(applied map[api.PolicyID][]api.PodID, problems map[string][]api.Problem, notes map[api.PolicyID][]api.Problem) []Policy {
	var policies []Policy
	for _, spec := range l.cache.PolicySpecs() {
		policies = append(policies, Policy{
			ID: spec.ID, Place: spec.Place(), Rules: len(spec.Ingress) + len(spec.Egress), Readable: spec.Subject != nil,
			IsolatesIngress: spec.IsolatesIngress, IsolatesEgress: spec.IsolatesEgress,
			Subject: subjectOf(spec), Pods: applied[spec.ID], Problems: problems[spec.ID.String()], Notes: notes[spec.ID],
		})
	}
	noteTies(policies)
	return policies
}

// subjectOf says in the style of kubectl whom a policy is for; "" is every pod.
func subjectOf(spec *intent.Policy) string {
	switch {
	case spec.Subject == nil:
		return "nothing"
	case spec.SubjectNamespaces == nil:
		return spec.Subject.String()
	}
	var parts []string
	if text := spec.SubjectNamespaces.String(); text != "" {
		parts = append(parts, "namespaces "+text)
	}
	if text := spec.Subject.String(); text != "" {
		parts = append(parts, "pods "+text)
	}
	return strings.Join(parts, ", ")
}

// noteTies notes which policies of a tier have one priority: these are asked in the
// order of their names, then of their kinds, which their author may not know.
func noteTies(policies []Policy) {
	tied := map[api.Place][]int{}
	for i, p := range policies {
		if at := p.Place; at.Tier != api.TierNetworkPolicy {
			at.ID = api.PolicyID{}
			tied[at] = append(tied[at], i)
		}
	}
	for at, list := range tied {
		if len(list) < 2 {
			continue
		}
		slices.SortFunc(list, func(a, b int) int { return policies[a].Place.Compare(policies[b].Place) })
		for n, i := range list {
			other, order := list[0], "before"
			if n == 0 {
				other, order = list[1], "after"
			}
			p := &policies[i]
			p.Notes = append(slices.Clone(p.Notes), api.Problem{Object: p.ID.String(), Field: "spec.priority", Class: api.ClassObject,
				Reason: fmt.Sprintf("%s has priority %d too: it is asked %s this one, by its name", policies[other].ID, at.Priority, order)})
		}
	}
}

// sets lists the sets of selectors, then those that were made of blocks.
func (l *layers) sets(dump []configurator.SetDump) []Set {
	var sets []Set
	for _, info := range l.processor.Sets() {
		sets = append(sets, Set{ID: info.ID, Meaning: info.Selector, Members: info.Members, Users: info.Users})
	}
	for _, d := range dump {
		if d.Derived {
			sets = append(sets, Set{ID: d.ID, Meaning: d.Meaning, Members: d.Members})
		}
	}
	return sets
}
