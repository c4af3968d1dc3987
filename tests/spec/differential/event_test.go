package differential

import (
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// Event is what happens to a cluster between two looks at it. It is data: the same
// events lead to the same states, and one that is left out leaves the others possible.
type Event struct {
	Action string         // one of Actions, or "start"
	What   string         // in words
	Edits  []cluster.Edit // of the state, all at once
	How    Delivery       // how running agents receive it
	Node   string         // whose agent something happens to
	Fate   Fate           // what that is
	// Fail are the calls that fail, each in one attempt of Node to enforce the event:
	// 1 is the first call to the dataplane in that attempt.
	Fail []int
	Seed uint64 // of the order of changes, and of the flows that are asked
}

// Delivery is how agents receive a state.
type Delivery int

// The deliveries. All of them lead to one result.
const (
	AsChanges    Delivery = iota
	AsEverything          // changes that name everything, with what did not change
	AsResync
	Twice    // the changes, and then again
	OneByOne // every change in a transaction of its own
	deliveries
)

var deliveryTexts = [...]string{"", "sent as changes of everything", "sent as a resync", "sent twice", "sent one by one"}

// Fate is what happens to the agent of a node.
type Fate int

// The fates.
const (
	RunsOn   Fate = iota
	Restarts      // and finds what its dataplane has
	Replaced      // with an empty dataplane
	GivesUp       // restarts after calls have failed, before it could finish
)

// String describes the event in one line.
func (e Event) String() string {
	parts := []string{e.What}
	if e.How != AsChanges {
		parts = append(parts, deliveryTexts[e.How])
	}
	switch e.Fate {
	case Restarts:
		parts = append(parts, "the agent of "+e.Node+" restarts")
	case Replaced:
		parts = append(parts, "node "+e.Node+" is replaced by an empty one")
	case RunsOn, GivesUp:
	}
	for i, call := range e.Fail {
		parts = append(parts, fmt.Sprintf("call %d of attempt %d on node %s fails", call, i+1, e.Node))
	}
	if e.Fate == GivesUp {
		parts = append(parts, "then its agent restarts")
	}
	return strings.Join(parts, "; ")
}

// GoString is what rapid prints of an event that it drew.
func (e Event) GoString() string { return e.String() }

// The actions in addition to those of package cluster.
const (
	squash  = "squash"       // several steps come as one change
	resync  = "resync"       // nothing changes, but everything is sent again
	restart = "restart"      // of an agent, after which everything is as it was or something is different
	replace = "replace node" // by an empty one
	failing = "failing call"
	start   = "start"
)

// Actions returns the names of everything that can happen.
func Actions() []string {
	return append(cluster.Actions(), squash, resync, restart, replace, failing)
}

// Draw draws an event of a kind from a state.
func Draw(src cluster.Source, cfg cluster.Config, from cluster.State, action string) Event {
	d := drawing{src: src, cfg: cfg, from: from}
	e := Event{Action: action}
	switch action {
	case squash:
		d.steps(&e, 2+src.Below(3, "steps"))
		e.How = d.delivery()
	case resync:
		e.What, e.How = "nothing", AsResync
	case restart:
		d.steps(&e, src.Below(3, "steps while it is down"))
		e.Fate, e.Node = Restarts, d.node()
	case replace:
		d.steps(&e, src.Below(3, "steps while it is down"))
		e.Fate, e.Node = Replaced, d.node()
	case failing:
		d.failing(&e)
	default:
		step := cluster.Act(src, cfg, from, action)
		e.What, e.Edits = step.What, cluster.Between(from, step.State)
		e.How = d.delivery()
	}
	e.Seed = uint64(src.Below(1<<30, "seed"))
	return e
}

// DrawStart draws the events that create a cluster from nothing. New agents receive it as a whole;
// agents that know that the cluster is empty receive changes.
func DrawStart(src cluster.Source, cfg cluster.Config) []Event {
	s := cluster.Start(src, cfg)
	all := Event{Action: start, What: "start", Edits: cluster.Objects(s)}
	if src.Below(4, "empty at first when 3") < 3 {
		return []Event{all}
	}
	nodes := cluster.Objects(cluster.State{Nodes: s.Nodes})
	all.Edits = all.Edits[len(nodes):]
	return []Event{{Action: start, What: "empty nodes", Edits: nodes}, all}
}

// drawing is an event that is being drawn.
type drawing struct {
	src  cluster.Source
	cfg  cluster.Config
	from cluster.State
}

func (d drawing) delivery() Delivery {
	return Delivery(max(0, d.src.Below(8, "delivery")-int(8-deliveries)))
}

// node picks the node of an agent. There always is one.
func (d drawing) node() string { return d.from.Nodes[d.src.Below(len(d.from.Nodes), "node")].Name }

// steps draws some steps that come as one.
func (d drawing) steps(e *Event, n int) {
	actions := cluster.Actions()
	to := d.from
	var what []string
	for range n {
		step := cluster.Act(d.src, d.cfg, to, actions[d.src.Below(len(actions), "action")])
		to = step.State
		what = append(what, step.What)
	}
	if n == 0 {
		what = []string{"nothing"}
	}
	e.What, e.Edits = strings.Join(what, ", "), cluster.Between(d.from, to)
}

// failing draws calls that fail while steps are enforced, by an agent that runs, has
// just started, or restarts before it was able to finish.
func (d drawing) failing(e *Event) {
	d.steps(e, 1+d.src.Below(3, "steps"))
	e.Node = d.node()
	e.Fate = []Fate{RunsOn, RunsOn, RunsOn, GivesUp, Restarts, Replaced}[d.src.Below(6, "fate")]
	for i := range 1 + d.src.Below(3, "attempts that fail") {
		e.Fail = append(e.Fail, 1+d.src.Below(4+3*i, "call that fails"))
	}
}
