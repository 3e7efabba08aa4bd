// promlint reads a Prometheus exposition on standard input, and prints what client_golang's linter has to say about
// it. It ends with 1 when there is something to say or the text cannot be read.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func main() {
	problems, err := promlint.New(os.Stdin).Lint()
	for _, problem := range problems {
		fmt.Printf("%s: %s\n", problem.Metric, problem.Text)
	}
	if err != nil {
		fmt.Println(err)
	}
	if err != nil || len(problems) > 0 {
		os.Exit(1)
	}
}
