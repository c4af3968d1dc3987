// Package reflect writes the state of a source to the store, only where the store differs.
//
// A Mirror is for a source that tells of every change, such as the API server of a cluster: it
// holds what the source wants beside what the store has. A Reflector is for sources that come now
// and then, such as manifests: it holds nothing, and compares with the store each time. Both keep
// the completeness marker true, by which agents know that the state is whole and of which cluster
// it is.
package reflect
