// Package permits computes what an ordered list of rules permits, for a dataplane that knows only
// permits and no order. It subtracts from each permit what earlier denies match, exactly: addresses
// as nets without other nets, ports as ranges, protocols one by one. It is pure.
//
// Address sets stay symbolic, so the result for a list does not depend on the members of sets.
// Expand resolves them.
package permits
