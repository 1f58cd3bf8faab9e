//go:build !lean

package main

import _ "terrace/kvmanager/values/remote" // the clients of valkey= and s3=
