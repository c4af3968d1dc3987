// Package secgroup enforces policy by security groups of OpenStack Neutron. One renderer serves a
// whole cluster: every pod is local, and its interface is a Neutron port.
//
// Security groups only permit, and have no order. Package internal/permits computes exactly what
// the ordered lists of a pod permit. Pods that are permitted the same share one group. Pods without
// rules have the default groups, see Options.
//
// # Invariants
//
//   - Never fewer. A port gets another group in one call, after the group has all its
//     rules. A group that all its ports change together gets new rules before it loses old ones.
//     With Options.AddressGroups, see there.
//   - The known content of Neutron changes only with its answers. After an error,
//     everything is read before anything is written.
//   - Equal input writes nothing, even after a restart.
//   - Groups and address groups without the mark of this cluster are never changed, nor are
//     ports that belong to no pod and have no group of ours.
package secgroup
