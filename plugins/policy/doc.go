// Package policy is the embeddable policy plugin: it wires the cache, the
// processor and the configurator together and gives them a life. It decides
// nothing about packets.
//
// # Place in the flow
//
//	Source ─ Next ─► cache ─► processor ─► configurator ─► renderers
//	         └──────────── one event loop ────────────┘
//
// The engine is the core: it has no goroutine and no clock. A Handler is the engine
// for a host that has a main loop, a Plugin the engine with a Source and a loop.
//
// # Life cycle
//
// Init wires, AfterInit starts the event loop and returns at once, Close stops it.
// The four methods are those that a plugin of cn-infra has, so a Plugin can be
// loaded by an agent of that kind without knowing it.
//
// # Invariants
//
//   - One goroutine owns the cache, the processor and the configurator. Others get
//     immutable values: Status, and a Snapshot that the loop builds when asked.
//   - The first resync is a resync for the renderers as well: what they find of an
//     earlier run is adopted or removed. Later ones are differences only.
//   - A renderer that failed is tried again, after pauses that double, while changes
//     go on for the others. Nothing that it was told is told again.
//   - A Source that ends takes nothing away: what is enforced stays enforced.
package policy
