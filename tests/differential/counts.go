package differential

// Counts says how much was compared.
type Counts struct {
	Sequences   int            `json:"sequences"`
	Events      int            `json:"events"`
	Actions     map[string]int `json:"actions"` // by name, those that changed something
	Verdicts    int            `json:"verdicts"`
	Denied      int            `json:"denied"`      // of the verdicts
	Established int            `json:"established"` // flows that were judged again
	Failures    int            `json:"failures"`    // calls that failed
	Between     int            `json:"between"`     // flows that were judged between two states
	Restarts    int            `json:"restarts"`    // of agents and nodes
	Fresh       int            `json:"fresh"`       // nodes that were compared with new ones
	Again       int            `json:"again"`       // states that were told again
}

func newCounts() Counts { return Counts{Actions: map[string]int{}} }

// event counts an event.
func (c *Counts) event(e Event) {
	c.Events++
	if len(e.Edits) > 0 || e.Fate != RunsOn || e.How != AsChanges {
		c.Actions[e.Action]++
	}
}

func (c *Counts) verdict(allowed bool) {
	c.Verdicts++
	if !allowed {
		c.Denied++
	}
}

// Add adds what somebody else counted.
func (c *Counts) Add(o Counts) {
	c.Sequences += o.Sequences
	c.Events += o.Events
	c.Verdicts += o.Verdicts
	c.Denied += o.Denied
	c.Established += o.Established
	c.Failures += o.Failures
	c.Between += o.Between
	c.Restarts += o.Restarts
	c.Fresh += o.Fresh
	c.Again += o.Again
	if c.Actions == nil {
		c.Actions = map[string]int{}
	}
	for name, n := range o.Actions {
		c.Actions[name] += n
	}
}
