// Package session converts the tables of the renderer cache to session rules, with which VPP
// decides about connections of applications on its host stack.
//
//	renderer/cache -> compile -> plan -> session rules of VPP
//
// A session rule has neither port ranges nor address sets. Not the first match decides, but the
// most specific one, as far as VPP finds it.
//
// # Invariants
//
//   - What is installed decides as the ordered table does.
//   - Between any two changes every connection attempt is decided as before or as wanted.
package session
