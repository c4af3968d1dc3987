package policy

import (
	"cmp"
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

// Snapshot is the complete state of a Plugin after one of its transactions. It is immutable,
// sorted, and shared by all callers while nothing changes. Directions are seen from the pod.
type Snapshot struct {
	number uint64 // number of the state

	Status     Status      `json:"status"`
	Namespaces []Namespace `json:"namespaces"`
	Pods       []Pod       `json:"pods"`
	Policies   []Policy    `json:"policies"`
	Sets       []Set       `json:"sets"`
	// Problems lists the problems of all objects, and the parts of policies that dataplanes cannot
	// enforce.
	Problems []api.Problem `json:"problems,omitempty"`
	// Tenants are the namespaces whose NetworkPolicies select local pods.
	Tenants []Tenant `json:"tenants,omitempty"`
}

// Tenant is what the policies of a namespace take of its quota, in units. The admin policies are
// together one without a name: they are counted and never refused.
type Tenant struct {
	Namespace string         `json:"namespace"`
	Units     int            `json:"units"` // without those of refused policies
	Quota     int            `json:"quota"`
	Refused   []api.PolicyID `json:"refused,omitempty"` // policies that isolate and permit nothing
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

// Pod is a pod of the cluster. Only live pods have addresses, labels and ports.
type Pod struct {
	ID         api.PodID       `json:"id"`
	State      string          `json:"state"` // "live", "host network" or "finished"
	Node       string          `json:"node,omitempty"`
	IPs        []netip.Addr    `json:"ips,omitempty"`
	Labels     Labels          `json:"labels,omitempty"`
	NamedPorts []api.NamedPort `json:"namedPorts,omitempty"`
	Local      bool            `json:"local"`
	// Enforced reports whether renderers have the pod: it is local and has an address. The
	// following fields are set only for such pods.
	Enforced bool `json:"enforced"`
	// Waiting reports whether the new rules of the pod are still pending, see Status.Waiting.
	Waiting  bool           `json:"waiting,omitempty"`
	Policies []api.PolicyID `json:"policies,omitempty"`
	// The rules per direction; nil if the direction is not isolated.
	Ingress *renderer.RuleList `json:"ingress,omitempty"`
	Egress  *renderer.RuleList `json:"egress,omitempty"`
	// Problems lists the problems of the pod's object.
	Problems []api.Problem `json:"problems,omitempty"`
}

// Policy is a policy of the cluster.
type Policy struct {
	Place api.Place `json:"-"` // among all policies
	Rules int       `json:"-"`
	// The directions that it isolates; an admin policy isolates none.
	IsolatesIngress bool `json:"-"`
	IsolatesEgress  bool `json:"-"`
	Audit           bool `json:"audit,omitempty"` // in audit mode
	// Readable is false if the subject of the policy is invalid: the policy then applies to no pod.
	Readable bool         `json:"-"`
	ID       api.PolicyID `json:"id"`
	Subject  string       `json:"subject"`        // its selector, in the style of kubectl
	Pods     []api.PodID  `json:"pods,omitempty"` // local pods that it applies to
	// Problems explain why it is partially enforced; without problems it is fully enforced, as far
	// as renderers are in sync.
	Problems []api.Problem `json:"problems,omitempty"`
	// Notes list what matches less than it might without being a mistake.
	Notes []api.Problem `json:"notes,omitempty"`
}

// Set is an address set to which rules may refer.
type Set struct {
	ID      api.SetID      `json:"id"`
	Meaning string         `json:"meaning"` // a selector, or what it was made of
	Members []netip.Prefix `json:"members,omitempty"`
	Users   []api.PolicyID `json:"users,omitempty"` // of sets that represent selectors
}

// layers are the layers of the pipeline, in order. They do not know each other.
type layers struct {
	cache        *cache.Cache
	processor    *processor.Processor
	configurator *configurator.Configurator
}

// snapshot collects the state of a node; waiting are the pods that wait in renderers, and reports
// those of renderers.
func (l *layers) snapshot(node string, waiting map[api.PodID]bool, reports []api.Problem) *Snapshot {
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
			pod.Waiting = waiting[info.ID]
			pod.Enforced, pod.Policies, pod.Ingress, pod.Egress = true, d.Policies, d.Ingress, d.Egress
		}
		s.Pods = append(s.Pods, pod)
	}
	s.Policies = l.policies(applied, byObject, findings.Notes)
	s.Sets = l.sets(dump.Sets)
	for _, t := range findings.Tenants {
		s.Tenants = append(s.Tenants, Tenant(t))
	}
	return s
}

// local returns the enforced pods of the node, and the sets without members, sorted.
func (l *layers) local() *Snapshot {
	dump, s := l.configurator.Dump(), &Snapshot{}
	for _, d := range dump.Pods {
		s.Pods = append(s.Pods, Pod{ID: d.Pod, IPs: d.IPs, Local: true, Enforced: true, Policies: d.Policies, Ingress: d.Ingress, Egress: d.Egress})
	}
	for id, selector := range l.processor.Selectors() {
		s.Sets = append(s.Sets, Set{ID: id, Meaning: selector})
	}
	for _, d := range dump.Sets {
		if d.Derived {
			s.Sets = append(s.Sets, Set{ID: d.ID, Meaning: d.Meaning})
		}
	}
	slices.SortFunc(s.Sets, func(a, b Set) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

func (l *layers) policies(applied map[api.PolicyID][]api.PodID, problems map[string][]api.Problem, notes map[api.PolicyID][]api.Problem) []Policy {
	var policies []Policy
	for _, spec := range l.cache.PolicySpecs() {
		policies = append(policies, Policy{
			ID: spec.ID, Place: spec.Place(), Rules: len(spec.Ingress) + len(spec.Egress), Readable: spec.Subject != nil,
			IsolatesIngress: spec.IsolatesIngress, IsolatesEgress: spec.IsolatesEgress, Audit: spec.Audit,
			Subject: subjectOf(spec), Pods: applied[spec.ID], Problems: problems[spec.ID.String()], Notes: notes[spec.ID],
		})
	}
	noteTies(policies)
	return policies
}

// subjectOf describes the subject of a policy in the style of kubectl; "" means every pod.
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

// noteTies notes which policies of a tier have equal priority: they are evaluated in the order of
// their names, then of their kinds, which their author may not know.
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

// sets lists the sets of selectors, then those built from blocks.
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
