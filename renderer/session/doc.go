// Package session turns the tables of the renderer cache into session rules, by which VPP decides
// about connections of applications on its host stack.
//
//	renderer/cache -> compile -> plan -> session rules of VPP
//
// A session rule has no range of ports and no set of addresses, and it is not the first match that
// decides but the most specific one, as far as VPP finds it.
//
// # Invariants
//
//   - What is installed decides as the ordered table does.
//   - Between any two changes every connection attempt is decided as before or as wanted.
package session
