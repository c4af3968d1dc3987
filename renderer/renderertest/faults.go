package renderertest

import (
	"context"
	"maps"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Edit is a change of what a renderer is told: a fault, for tests of tests.
type Edit func(renderer.Changes) renderer.Changes

// Edited returns a renderer that is told edited changes.
func Edited(r renderer.Renderer, edit Edit) renderer.Renderer { return edited{r, edit} }

type edited struct {
	renderer.Renderer
	edit Edit
}

func (r edited) Unwrap() renderer.Renderer { return r.Renderer }

func (r edited) Apply(ctx context.Context, c renderer.Changes) error {
	return r.Renderer.Apply(ctx, r.edit(c))
}

// KeepMembers loses members that leave sets.
func KeepMembers(c renderer.Changes) renderer.Changes {
	sets := map[api.SetID]renderer.SetChange{}
	for id, s := range c.Sets {
		sets[id] = renderer.SetChange{Added: s.Added}
	}
	c.Sets = sets
	return c
}

// KeepPods loses the end of pods.
func KeepPods(c renderer.Changes) renderer.Changes {
	c.Pods = maps.Clone(c.Pods)
	maps.DeleteFunc(c.Pods, func(_ api.PodID, cfg *renderer.PodConfig) bool { return cfg == nil })
	return c
}

// EditPods changes the configurations of pods. Those for which edit returns false are lost.
func EditPods(edit func(api.PodID, *renderer.PodConfig) bool) Edit {
	return func(c renderer.Changes) renderer.Changes {
		pods := map[api.PodID]*renderer.PodConfig{}
		for pod, cfg := range c.AllPods() {
			if cfg != nil {
				other := *cfg
				if cfg = &other; !edit(pod, cfg) {
					continue
				}
			}
			pods[pod] = cfg
		}
		c.Pods = pods
		return c
	}
}

// EditRules changes every rule of every list.
func EditRules(edit func(*api.ContivRule)) Edit {
	return EditPods(func(_ api.PodID, cfg *renderer.PodConfig) bool {
		for _, l := range []**renderer.RuleList{&cfg.Ingress, &cfg.Egress} {
			if *l == nil {
				continue
			}
			var rules []api.ContivRule
			for _, r := range (*l).Rules() {
				edit(&r)
				rules = append(rules, r)
			}
			*l = list(rules...)
		}
		return true
	})
}

// OpenEgress loses the rules for traffic to pods.
var OpenEgress = EditPods(func(_ api.PodID, cfg *renderer.PodConfig) bool { cfg.Egress = nil; return true })

// FirstPorts takes the first port of a range for all of it.
var FirstPorts = EditRules(func(r *api.ContivRule) { r.DstPort.Last = r.DstPort.First })
