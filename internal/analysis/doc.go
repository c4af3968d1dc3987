// Package analysis is the family of all that answers questions about policy: the specification
// (oracle) and what is asked of it (explain, matrix, graph, preview, observed, policytest), with the
// texts that users type (expr) and what services stand for (services). It enforces nothing: an agent
// answers from here, sluicectl too, and no plugin and no renderer imports it.
package analysis
