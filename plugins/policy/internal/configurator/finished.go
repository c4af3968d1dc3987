package configurator

import "github.com/sluice-net/sluice/renderer"

// finished is a generated list with its key, which takes as long as the list.
type finished struct {
	*generated
	rules *renderer.RuleList
	key   listKey
}

// finish computes the key of a list. It calls pause between small parts of the work.
func finish(g *generated, pause func(steps int)) *finished {
	if g == nil {
		return nil
	}
	rules := renderer.NewRuleList(g.rules, g.origins, pause)
	return &finished{g, rules, listKey{rules.Digest(), digestOrigins(g.origins, g.refused, pause)}}
}
