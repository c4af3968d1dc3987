// Package convert turns Kubernetes objects into their canonical model messages. It is pure: a
// message is a function of its object, and equal objects have equal bytes.
//
// It fails closed. An invalid peer or port of a policy stays in its list in a form that matches
// nothing. It is never dropped, because an empty list matches everything. Where matching nothing
// would open, in a rule of a cluster-scoped policy that denies or passes, the rule denies
// everything. Each error is one api.Problem that names the field.
package convert
