// Package decode reads Kubernetes objects from YAML and JSON, as strictly as an API server does.
//
// Each invalid document or object is one Refusal that names it and the field; the rest of a stream
// is read. No input makes the package panic, and the work per invalid document does not grow with
// the stream.
package decode
