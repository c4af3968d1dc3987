package differential

import "github.com/sluice-net/sluice/tests/lab/harness"

// Counts counts what was compared.
type Counts struct {
	Sequences int
	Events    int
	Actions   map[string]int // by name, those that changed something
	Failures  int            // calls that failed
	Restarts  int            // of agents and nodes
	harness.Examined
}

func newCounts() Counts { return Counts{Actions: map[string]int{}} }

// event counts an event.
func (c *Counts) event(e Event) {
	c.Events++
	if len(e.Edits) > 0 || e.Fate != RunsOn || e.How != AsChanges {
		c.Actions[e.Action]++
	}
}

// Add adds other counts.
func (c *Counts) Add(o Counts) {
	c.Sequences += o.Sequences
	c.Events += o.Events
	c.Failures += o.Failures
	c.Restarts += o.Restarts
	c.Examined.Add(o.Examined)
	if c.Actions == nil {
		c.Actions = map[string]int{}
	}
	for name, n := range o.Actions {
		c.Actions[name] += n
	}
}
