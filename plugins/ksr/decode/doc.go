// Package decode reads Kubernetes objects from YAML and JSON, as strictly as an API server does.
//
// Every bad document or object is one Refusal that names it and the field; all else of a stream is
// read. No input makes the package panic, and no work per bad document grows with the stream.
package decode
