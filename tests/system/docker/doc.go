// Package docker checks that the Dockerfile, the compose file, the deployment manifests and their
// guides name only paths, flags, commands and settings that exist. It needs no container engine.
package docker
