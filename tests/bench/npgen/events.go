package main

import (
	"fmt"
	"slices"
	"strconv"
)

// event is one change of the cluster. The object is its state after the change, or the
// last one if it is deleted.
type event struct {
	I      int    `json:"i"`
	Op     string `json:"op"`  // add, update or delete
	Tag    string `json:"tag"` // what kind of change it is, for statistics
	Object any    `json:"object"`
}

// eventLog collects events in their order.
type eventLog []event

func (l *eventLog) add(op, tag string, object any) {
	*l = append(*l, event{len(*l), op, tag, object})
}

// remove takes element i out of a list whose order does not matter.
func remove[T any](list []T, i int) []T {
	list[i] = list[len(list)-1]
	return list[:len(list)-1]
}

// podChurn is pods that come, change and go.
type podChurn struct {
	*cluster
	rng  *rng
	live []*pod // in any order
	next int    // index of the next new pod; those of the start are lower
	log  eventLog
}

// podEvents returns n events of pods, or one more.
func (c *cluster) podEvents(n int) eventLog {
	ch := podChurn{cluster: c, rng: newRNG(c.seed, "churn"), live: slices.Clone(c.pods), next: 1000}
	for len(ch.log) < n {
		switch x := ch.rng.below(100); {
		case x < 40 || len(ch.live) == 0:
			ch.arrive()
		case x < 80:
			i := ch.rng.below(len(ch.live))
			ch.log.add("delete", "pod-del", ch.live[i])
			ch.live = remove(ch.live, i)
		case x < 90:
			ch.change("pod-label", ch.moveToAnyApp)
		case x < 95: // as in the rolling update of a deployment
			ch.change("pod-newlabelset", func(p *pod) {
				p.Meta.Labels = p.Meta.Labels.with("pod-template-hash", fmt.Sprintf("new-%06d", len(ch.log)))
			})
		default:
			i := ch.change("pod-terminated", func(p *pod) { p.Status.Phase = "Succeeded" })
			ch.live = remove(ch.live, i)
		}
	}
	return ch.log
}

// arrive adds a replica to an app: first without an address, then with it.
func (ch *podChurn) arrive() {
	ns, app, node := ch.rng.below(ch.size.namespaces), ch.rng.below(ch.size.apps), ch.rng.below(ch.size.nodes)
	p := ch.newPod(ch.rng, ns, app, ch.next, node)
	ch.next++
	pending := *p
	pending.Status = podStatus{Phase: "Pending"}
	ch.log.add("add", "pod-add-noip", &pending)
	ch.log.add("update", "pod-ip", p)
	ch.live = append(ch.live, p)
}

// change modifies a copy of any pod and returns its place among those alive. The edit
// must replace what the pod points to, and not write into it.
func (ch *podChurn) change(tag string, edit func(*pod)) int {
	i := ch.rng.below(len(ch.live))
	p := *ch.live[i]
	edit(&p)
	ch.live[i] = &p
	ch.log.add("update", tag, &p)
	return i
}

// moveToAnyApp gives a pod the labels by which policies know another app.
func (ch *podChurn) moveToAnyApp(p *pod) {
	app := ch.rng.below(ch.size.apps)
	if ch.size.small {
		p.Meta.Labels = scaleLabels(app)
		return
	}
	l := appLabels(app)
	p.Meta.Labels = p.Meta.Labels.with("app", l["app"], "tier", l["tier"], "role", l["role"])
}

// namespaceToggles is how often the label of the workload nslabel is set or taken away.
const namespaceToggles = 20

// namespaceEvents appends n policies that select peers by a label of namespaces, which
// the first namespace then gets and loses in turn. Half of the policies share their
// selectors of pods, the other half have one each.
func (c *cluster) namespaceEvents(n int) eventLog {
	r := newRNG(c.seed, "w3")
	for i := range n {
		app := appName(i / 2 % c.size.apps)
		from := peer{NamespaceSelector: new(matching("w3", "target")), PodSelector: new(matching("app", app))}
		if i%2 == 1 {
			from.PodSelector = new(expression("app", "In", app, uniqueName(i)))
		}
		applied := matching("app", c.anyApp(r))
		c.addPolicy(i%c.size.namespaces, fmt.Sprintf("w3-%05d", i), allowFrom(applied, ingressOnly, []port{tcp(1024 + i%60000)}, from))
	}
	var log eventLog
	for i := range namespaceToggles {
		ns := *c.namespaces[0]
		if i%2 == 0 {
			ns.Meta.Labels = ns.Meta.Labels.with("w3", "target")
		}
		log.add("update", "ns-label", &ns)
	}
	return log
}

// policyChurn creates, changes and deletes policies, in addition to those of the start, which do
// not change.
type policyChurn struct {
	*cluster
	rng  *rng
	live []*networkPolicy // in any order
	log  eventLog
}

// policyEvents returns n events of policies.
func (c *cluster) policyEvents(n int) eventLog {
	ch := policyChurn{cluster: c, rng: newRNG(c.seed, "w4")}
	for len(ch.log) < n {
		switch x := ch.rng.below(100); {
		case x < 40 || len(ch.live) == 0:
			ch.create()
		case x < 60:
			ch.change("pol-port", ch.openPort)
		case x < 75:
			ch.change("pol-appliedto", func(s *policySpec) { s.PodSelector = matching("app", ch.anyApp(ch.rng)) })
		default:
			i := ch.rng.below(len(ch.live))
			ch.log.add("delete", "pol-del", ch.live[i])
			ch.live = remove(ch.live, i)
		}
	}
	return ch.log
}

// create adds a policy with a selector of peers that no earlier policy has used.
func (ch *policyChurn) create() {
	ns, id := ch.rng.below(ch.size.namespaces), len(ch.log)
	tag, from := ch.newPeer(id)
	spec := allowFrom(matching("app", ch.anyApp(ch.rng)), ingressOnly, []port{tcp(8080)}, from)
	p := ch.newPolicy(ns, fmt.Sprintf("w4-%05d", id), spec)
	ch.live = append(ch.live, p)
	ch.log.add("add", tag, p)
}

// newPeer draws a peer that is unique by the id, and the tag for the size of its set:
// the pods of an app in a namespace, those of a team, or nearly all of production.
func (ch *policyChurn) newPeer(id int) (tag string, from peer) {
	switch ch.rng.below(4) {
	case 0:
		team := matching("team", anyTeam(ch.rng))
		return "pol-add-team", peer{NamespaceSelector: &team, PodSelector: new(expression("app", "In", appName(0), uniqueName(id)))}
	case 1:
		rest := expression("uniq", "NotIn", strconv.Itoa(id))
		return "pol-add-broad", peer{NamespaceSelector: new(matching("env", "prod")), PodSelector: &rest}
	default:
		return "pol-add-10", peer{PodSelector: new(expression("app", "In", ch.anyApp(ch.rng), uniqueName(id)))}
	}
}

// change modifies a copy of any policy. The edit must replace what the spec points to,
// and not write into it.
func (ch *policyChurn) change(tag string, edit func(*policySpec)) {
	i := ch.rng.below(len(ch.live))
	p := *ch.live[i]
	edit(&p.Spec)
	ch.live[i] = &p
	ch.log.add("update", tag, &p)
}

// openPort adds a port to the first rule.
func (ch *policyChurn) openPort(s *policySpec) {
	s.Ingress = slices.Clone(s.Ingress)
	first := &s.Ingress[0]
	first.Ports = append(slices.Clip(first.Ports), tcp(1+ch.rng.below(60000)))
}
