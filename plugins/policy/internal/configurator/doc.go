// Package configurator translates the policies of a pod into two ordered lists of
// six-tuples and fans them out to the renderers.
//
// # Place in the flow
//
// The processor tells it, in a transaction, which policies apply to which local
// pod and who is in which address set. It generates rules (a pure function, see
// generate) and tells every renderer.
//
// Direction is flipped here, and nowhere else: what a policy says of ingress to a
// pod becomes the egress list of its PodConfig, because it is enforced where
// traffic leaves the vswitch.
//
// # Invariants
//
//   - Lists are a function of the policies only: neither the order of policies,
//     rules, peers and ports nor what was before shows in them.
//   - Below this package there are only Permit and Deny: Pass is flattened here (see
//     delegate). NetworkPolicies come to one Deny only, the last rule. Holes of blocks
//     are subtracted, never denied: another rule may permit them.
//   - What cannot be translated permits nothing.
//   - Lists are immutable and hash-consed: pods with equal policies share lists, and
//     equal lists are one object. Everything is counted, so what no pod uses is gone.
//   - Equal input tells renderers nothing.
//   - What a renderer was told once is not told again after it failed: it keeps what
//     it was told and is asked to try again by the next Commit.
//
// A Configurator is used by one goroutine. Commit starts one goroutine per renderer
// and waits for all of them.
package configurator
