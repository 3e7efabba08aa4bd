// Pause waits until it is asked to end. It holds the namespaces of a pod, or, as process 1, those of a machine of the
// rig, where it also collects the orphans that end. Arguments are printed as one line first, for a pod that has to say something.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	if words := os.Args[1:]; len(words) > 0 {
		fmt.Println(strings.Join(words, " "))
	}
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		// One signal may stand for many children.
		for {
			if child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); child <= 0 && err != syscall.EINTR {
				break
			}
		}
	}
}
