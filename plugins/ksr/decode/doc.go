// Package decode reads streams of Kubernetes manifests into objects, and reports each invalid one
// without stopping.
//
// Each invalid document or object is one Refusal that names it and the field; the rest of a stream
// is read. No input makes the package panic, and the work per invalid document does not grow with
// the stream.
package decode
