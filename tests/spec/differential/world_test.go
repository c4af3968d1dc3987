package differential

import "github.com/sluice-net/sluice/tests/lab/cluster"

// World is the kind of a cluster that a sequence is about.
type World struct {
	Config   cluster.Config
	DenyNode bool
}

// DrawWorld draws a small world: one that a person can read, in which names and
// addresses are soon used again.
func DrawWorld(src cluster.Source) World {
	w := World{
		Config: cluster.Config{
			Namespaces: 1 + src.Below(3, "namespaces"), Nodes: 1 + src.Below(3, "nodes"),
			Pods: 4 + src.Below(7, "pods"), Policies: 2 + src.Below(6, "policies"),
			Admin: src.Below(6, "admin policies"),
			IPv6:  src.Below(4, "no IPv6 when 3") < 3, Odd: src.Below(4, "nothing odd when 3") < 3,
			SharedAddresses: src.Below(16, "shared addresses when 15") == 15,
		},
		DenyNode: src.Below(8, "deny node when 7") == 7,
	}
	w.Config.Audit = w.Config.Policies%3 > 0
	return w
}

// Options returns the options of a machine for the world.
func (w World) Options(o Options) Options {
	o.DenyNode = w.DenyNode
	return o
}
