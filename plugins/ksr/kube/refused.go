package kube

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// refused returns what is in force in place of a rejected object if it has no older version: of a
// policy one that closes what it may select, else nil.
func refused(id model.ID, obj any, problems []api.Problem) proto.Message {
	u, text := obj.(*unstructured.Unstructured)
	if !text {
		return convert.Refused(obj, problems)
	}
	if obj, _ := typed(id, u.Object); obj != nil {
		return convert.Refused(obj, problems)
	}
	spec, _ := u.Object["spec"].(map[string]any)
	everyone := map[string]any{"namespaces": map[string]any{}}
	for n, subject := range []any{spec["subject"], everyone} {
		for _, at := range []map[string]any{spec, nil} {
			tree := maps.Clone(u.Object)
			tree["spec"] = partOf(id.Kind, spec, subject, at)
			obj, _ := typed(id, tree)
			p, ok := convert.Refused(obj, problems).(*model.ClusterPolicy)
			if !ok {
				continue
			}
			if n > 0 {
				p.Subject = nil
			}
			return p
		}
	}
	return nil
}

// partOf returns a spec of a kind with a subject and the place of another spec, and with a rule
// that denies in each direction in which the spec may deny. Without a place it is evaluated first.
func partOf(kind model.Kind, spec map[string]any, subject any, at map[string]any) map[string]any {
	part := map[string]any{"subject": subject}
	if kind != model.KindBaselineAdminNetworkPolicy {
		part["priority"] = cmp.Or(at["priority"], any(int64(0)))
	}
	if kind == model.KindClusterNetworkPolicy {
		part["tier"] = cmp.Or(at["tier"], any("Admin"))
	}
	peer := []any{map[string]any{"namespaces": map[string]any{}}}
	for direction, peers := range map[string]string{"ingress": "from", "egress": "to"} {
		if mayDeny(spec, direction) {
			part[direction] = []any{map[string]any{"action": "Deny", peers: peer}}
		}
	}
	return part
}

// mayDeny reports whether a spec may deny in a direction: not all of its rules there allow, or it
// has a field that this version does not know.
func mayDeny(spec map[string]any, direction string) bool {
	for name := range spec {
		if !slices.Contains([]string{"tier", "priority", "subject", "ingress", "egress"}, name) {
			return true
		}
	}
	if spec == nil || spec[direction] == nil {
		return spec == nil
	}
	rules, ok := spec[direction].([]any)
	return !ok || slices.ContainsFunc(rules, func(r any) bool {
		rule, _ := r.(map[string]any)
		return rule["action"] != "Allow" && rule["action"] != "Accept"
	})
}
