package model

import ()
