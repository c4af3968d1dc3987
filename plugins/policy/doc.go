// Package policy is the embeddable policy plugin: it connects the cache, the processor and the
// configurator and runs them. It makes no decisions about packets.
//
// # Place in the flow
//
//	Source ─ Next ─► cache ─► processor ─► configurator ─► renderers
//	         └──────────── one event loop ────────────┘
//
// The engine is the core: it has no goroutine and no clock. A Handler wraps the engine for a host
// with a main loop of its own; a Plugin adds a Source and an event loop.
//
// # Life cycle
//
// Init connects the parts, AfterInit starts the event loop and returns at once, Close stops it. The
// four methods are those of a cn-infra plugin, so a cn-infra agent can load a Plugin without
// knowing it.
//
// # Invariants
//
//   - One goroutine at a time uses the cache, the processor and the configurator: that
//     of the loop, or that which builds a Snapshot on request. Others get immutable
//     values: Status and Snapshot.
//   - The first resync is also a resync of the renderers: they adopt or remove the
//     rules of an earlier run. Later resyncs send differences only.
//   - A failed renderer is retried with delays that double, while changes continue
//     to reach the others. Nothing is sent to it twice.
//   - When a Source ends, the enforced rules stay in force.
package policy
