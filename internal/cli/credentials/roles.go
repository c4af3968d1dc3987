package credentials

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
)

// plainPrefix matches prefixes that mean to a shell what they are.
var plainPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// Roles returns the commands of etcdctl that make roles and users, in the order in which they must
// run. Without nodes there is one role for the agents of all nodes.
func Roles(prefix string, nodes []string) (out []string, err error) {
	if !plainPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("--etcd-prefix %s: want letters, digits and ._- behind slashes, as %s", model.Quoted(prefix), model.DefaultPrefix)
	}
	var users []string
	role := func(name string, grants ...string) {
		out = append(out, "etcdctl role add "+name)
		for _, g := range grants {
			out = append(out, fmt.Sprintf("etcdctl role grant-permission %s", g))
		}
		users = append(users, name)
	}
	below := func(role, what, key string) string { return "--prefix=true " + role + " " + what + " " + key }
	role("sluice-ksr", below("sluice-ksr", "readwrite", model.Root(prefix)), below("sluice-ksr", "readwrite", prefix+"/ksr/"),
		below("sluice-ksr", "read", model.StatusRoot(prefix)))
	if len(nodes) == 0 {
		role("sluice-agent", below("sluice-agent", "read", prefix+"/"), below("sluice-agent", "readwrite", model.StatusRoot(prefix)))
		role("sluice-cni", below("sluice-cni", "readwrite", model.VswitchRoot(prefix)))
	}
	for i, node := range nodes {
		if why := validation.IsDNS1123Subdomain(node); len(why) > 0 || slices.Contains(nodes[:i], node) {
			return nil, fmt.Errorf("--node %s: want the name of a node, once", model.Quoted(node))
		}
		// One key, and not what begins with it: that of node-10 begins with that of node-1.
		role("sluice-agent-"+node, below("sluice-agent-"+node, "read", prefix+"/"), "sluice-agent-"+node+" readwrite "+model.StatusRoot(prefix)+node)
		role("sluice-cni-"+node, below("sluice-cni-"+node, "readwrite", model.VswitchRoot(prefix)+node+"/"))
	}
	for _, u := range users {
		out = append(out, "etcdctl user add --no-password "+u, "etcdctl user grant-role "+u+" "+u)
	}
	return out, nil
}
